"""The live console against the sandbox's real host code over real SSH."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from ddtree_console.config.rules import load_rules
from ddtree_console.config.store import ProfileStore
from ddtree_console.demo.sandbox import Sandbox
from ddtree_console.domain.service_state import READY, service_state
from ddtree_console.services.console import LiveConsole
from ddtree_console.services.plans import Operator
from ddtree_console.transport.bootstrap import launcher
from ddtree_console.transport.opener import opener

KEY = "ct200/wrapper"


def gone(pid: int) -> bool:
    """Whether that process has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def until_ready(console: LiveConsole) -> int:
    """The main process of the service once it is ready."""
    async with asyncio.timeout(20):
        seen = console.snapshot()
        while True:
            host = next(h for h in seen.hosts if h.name == "ct200")
            service = seen.service(KEY)
            if service is not None and service.unit and service_state(host, service, seen.now).rank == READY:
                return service.unit.main_pid
            seen = await console.changed(seen.serial)


async def test_from_the_key_to_the_stop_and_through_a_lost_connection(tmp_path: Path) -> None:
    async with Sandbox(tmp_path / "box", 200, ("ct200",)) as box:
        store = ProfileStore(Path(box.fleet.path).parent)
        console = LiveConsole(box.fleet, store, opener(box.fleet), launcher(load_rules), Operator("ops@test"))
        running = asyncio.ensure_future(console.run())
        pid = await until_ready(console)
        armed = await console.preview_rollback(KEY)
        assert (armed.target, armed.refusal) == ("linear-wrapper", "")
        await asyncio.sleep(0.5)  # the countdown, in which the command on the host starts
        began = time.perf_counter()
        submitting = asyncio.ensure_future(console.rollback(KEY))
        while not gone(pid):  # noqa: ASYNC110 - a process that is not ours sends no event
            await asyncio.sleep(0.002)
        stopped = time.perf_counter() - began
        sent = await submitting
        kinds = []
        async with asyncio.timeout(40):
            async for event in console.follow(KEY, sent.tx):
                kinds.append(event.kind)
                if event.data.get("rung") == "token" and event.data.get("state") == "ok":
                    transport = console.monitor.hosts["ct200"].link.transport
                    assert transport is not None
                    await transport.close()
        assert kinds[0] == "begin"
        assert kinds[-1] == "outcome"
        assert console.snapshot().hosts[0].link == "up"
        assert await until_ready(console) != pid
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    print(f"from rollback() to the end of the old process: {stopped:.3f} s")
    # 0.3 s is the goal that `make bench` measures alone; here other tests share the machine.
    assert stopped < 1.5
