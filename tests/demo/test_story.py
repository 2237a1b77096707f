"""The demo as it begins, and the story lived in it: the real host code deploys, judges and goes back."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ddtree_console.config.rules import load_rules
from ddtree_console.config.store import ProfileStore
from ddtree_console.demo import serve
from ddtree_console.demo.sandbox import Sandbox
from ddtree_console.domain.events import Event
from ddtree_console.domain.txview import TxView, fold_all
from ddtree_console.services.console import LiveConsole
from ddtree_console.services.plans import Operator
from ddtree_console.transport.bootstrap import launcher
from ddtree_console.transport.opener import opener
from tests.demo.helpers import alive, show


@asynccontextmanager
async def console_of(box: Sandbox) -> AsyncIterator[LiveConsole]:
    """The live console over the demo's fleet, both hosts up."""
    store = ProfileStore(Path(box.fleet.path).parent)
    console = LiveConsole(box.fleet, store, opener(box.fleet), launcher(load_rules), Operator("op@test", "test"))
    running = asyncio.create_task(console.run())
    try:
        async with asyncio.timeout(20):
            seen = console.snapshot()
            while not all(h.link == "up" and all(s.unit for s in h.services) for h in seen.hosts):
                seen = await console.changed(seen.serial)
        yield console
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


END = 150
"""Seconds after which a transaction counts as hung. The whole test takes 6 s on a free machine, but dozens of processes
make it up: 44 s where nine others want the same two cores."""


async def deploy(console: LiveConsole, key: str, profile: str) -> TxView:
    """The whole transaction, held for a moment only."""
    sent = await console.deploy(key, profile, hold=0.2)
    events: list[Event] = []
    try:
        async with asyncio.timeout(END):
            async for event in console.follow(key, sent.tx):
                events.append(event)
    except TimeoutError:
        seen = console.snapshot().service(key)
        last = [line.text for line in console.journal(key, limit=30)]
        raise AssertionError(f"no end of {sent.tx}: {events[-5:]}; {seen}; {last}") from None
    view = fold_all(events)
    assert view is not None
    return view


async def test_it_begins_with_a_release_that_serves_on_both_hosts(tmp_path: Path) -> None:
    async with Sandbox(tmp_path / "box", speed=200) as box:
        assert box.fleet.demo
        assert [h.name for h in box.fleet.hosts] == ["ct129", "ct200"]
        assert box.fleet.profiles["ddtree-shadow-small-nograph"].flags["disable-cuda-graph"] is True
        for key in ("ct129/sglang-qwen", "ct200/wrapper"):
            service = box.fleet.service(key)
            host = box.host(service.host)
            state = await show(host, service.unit, "ActiveState", "UnitFileState", "FragmentPath")
            assert (state["ActiveState"], state["UnitFileState"]) == ("active", "enabled")
            kept = json.loads(host.path(f"/var/lib/ddtree-console/{service.unit}/state.json").read_text())
            assert (kept["committed"], kept["known_good"]) == ("r1", "r1")
            url = f"http://127.0.0.1:{service.port}/model_info"
            with await asyncio.to_thread(urllib.request.urlopen, url) as answer:
                assert answer.status == 200


async def fails(console: LiveConsole) -> None:
    """ct129: the third attempt, without the decode graph, dies in piecewise capture, and what served before is back."""
    view = await deploy(console, "ct129/sglang-qwen", "ddtree-shadow-small-nograph")
    assert (view.outcome, view.attempts[-1].target) == ("went_back", "r1")
    verdict = view.attempts[0].verdict
    assert verdict is not None
    assert verdict.finding["slug"] == "kernel-arch-missing"
    assert [line.name for line in view.attempts[0].phases if line.state == "fail"] == ["piecewise graphs"]


async def works(console: LiveConsole, box: Sandbox) -> None:
    """ct200: the native service beside the wrapper; a power cut boots what was committed."""
    view = await deploy(console, "ct200/sglang-dflash", "dflash-smoke")
    assert view.outcome == "committed", view
    host = box.host("ct200")
    assert host.path("/etc/systemd/system/sglang-dflash.service").exists()
    before = await show(host, "sglang-dflash.service", "InvocationID")
    await host.power_loss()
    after = await show(host, "sglang-dflash.service", "InvocationID", "ActiveState")
    assert after["ActiveState"] == "active"
    assert after["InvocationID"] != before["InvocationID"]


@pytest.mark.timeout(END + 90)  # so that a hang is told with the transaction's events
async def test_the_story_fails_on_ct129_and_works_on_ct200(tmp_path: Path) -> None:
    """All of its attempts, each led to by the finding before it: tests/contract/test_findings.py."""
    async with Sandbox(tmp_path / "box", speed=100) as box, console_of(box) as console:
        await asyncio.gather(fails(console), works(console, box))


def test_in_a_thread_of_its_own_it_ends_when_left() -> None:
    with serve.running_demo(speed=200) as fleet:
        roots = json.loads(Path(fleet.hosts[0].roots or "").read_text())
        root = Path(roots["etc"]).parents[1]
        procs = list(root.glob("*/cgroup/system.slice/*/cgroup.procs"))
        pids = [int(word) for path in procs for word in path.read_text().split()]
        assert len(pids) >= 2
        assert all(alive(pid) for pid in pids)
        assert root.stat().st_mode & 0o077 == 0
    assert not any(alive(pid) for pid in pids)
    assert not root.exists()


def test_a_demo_that_cannot_begin_says_why_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def broken(*_: object) -> str:
        raise RuntimeError("no host code")

    monkeypatch.setattr("ddtree_console.demo.prepare.install", broken)
    with pytest.raises(RuntimeError, match="no host code"), serve.running_demo():
        pass
    assert list(tmp_path.iterdir()) == []
