"""Watcher, follower and checks on a real host: systemd, journald, sshd, sudo; through the real connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from ddtree_console.domain.spec import Host as SpecHost
from ddtree_console.transport import archive
from ddtree_console.transport.base import Process
from ddtree_console.transport.bootstrap import HostCode
from ddtree_console.transport.ssh import SshTransport
from tests.lab.fixtures import Hosts
from tests.lab.host import Host

pytestmark = pytest.mark.lab
UNIT = "[Service]\nExecStart=/usr/bin/python3 -m http.server 8081\nTimeoutStopSec=2\n"
SLOT = {"service": "web", "unit": "web.service", "port": 8081, "gpus": [], "engine": "generic", "probe": False}
CONFIG = {"v": 1, "services": [SLOT], "gpu_interval": 5, "unit_interval": 1, "http_interval": 2}


class Connection:
    """A connection with the host code started on it, mended as services do."""

    def __init__(self, host: Host, user: str) -> None:
        spec = SpecHost("h", host.ip, user=user, identity=str(host.key), known_hosts=str(host.known_hosts))
        self.transport = SshTransport(spec)
        self.code = HostCode(spec, archive.build())

    async def start(self, command: str, first: dict[str, Any]) -> tuple[Process, AsyncIterator[bytes]]:
        """A command that follows; its lines from the first on."""
        while True:
            process = await self.transport.start(self.code.argv(command))
            with contextlib.suppress(Exception):
                await process.send(json.dumps(first).encode())
            lines = process.lines()
            async for line in lines:
                return process, _chain(line, lines)
            status, stderr = await process.wait()
            assert status is not None
            await self.code.repair(self.transport, status, stderr)

    async def ask(self, command: str, question: dict[str, Any]) -> list[dict[str, Any]]:
        """A short command's lines."""
        done = await self.transport.run(self.code.argv(command), json.dumps(question).encode() + b"\n")
        return [json.loads(line) for line in done.stdout.splitlines()]


async def _chain(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for line in rest:
        yield line


async def until(lines: AsyncIterator[bytes], wanted: Callable[[dict[str, Any]], Any], timeout: float = 10) -> Any:
    """The first message of which it holds."""
    async with asyncio.timeout(timeout):
        async for line in lines:
            message = json.loads(line)
            if wanted(message):
                return message
    raise AssertionError("the stream ended")


@contextlib.asynccontextmanager
async def connected(host: Host, user: str = "root") -> AsyncIterator[Connection]:
    """A connection for one test."""
    connection = Connection(host, user)
    await connection.transport.connect()
    try:
        yield connection
    finally:
        await connection.transport.close()


def web(host: Host) -> None:
    """A unit that serves."""
    host.write("/etc/systemd/system/web.service", UNIT)
    host.exec("systemctl daemon-reload && systemctl start web")


async def test_first_state_within_a_second_of_login_and_each_change(hosts: Hosts) -> None:
    host = hosts["h1"]
    web(host)
    async with connected(host) as first:
        process, _ = await first.start("watch", CONFIG)
        await process.close()
    async with connected(host) as again:  # the host code is there now
        began = time.monotonic()
        process, lines = await again.start("watch", CONFIG)
        state = (await until(lines, lambda m: m["kind"] == "units"))["units"]["web.service"]
        assert time.monotonic() - began < 1.5  # a second, and what a busy test machine adds
        assert (state["active"], state["sub"], state["fragment"]) == (
            "active",
            "running",
            "/etc/systemd/system/web.service",
        )
        assert state["since"] == pytest.approx(time.time(), abs=60)
        port = (await until(lines, lambda m: m["kind"] == "ports" and m["ports"]["web"]["state"] == "ours"))["ports"]
        assert port["web"]["pid"] == state["main_pid"]
        host.exec("systemctl kill -s KILL web")
        dead = await until(lines, lambda m: m["kind"] == "units" and m["units"]["web.service"]["active"] == "failed", 5)
        dead = dead["units"]["web.service"]
        assert (dead["result"], dead["exit_status"], dead["main_pid"]) == ("signal", 9, 0)
        assert (await until(lines, lambda m: m["kind"] == "ports"))["ports"]["web"]["state"] == "nobody"
        host.write("/etc/systemd/system/web.service", UNIT + "Nice=1\n")
        await until(lines, lambda m: m["kind"] == "units" and m["units"]["web.service"]["need_reload"], 8)
        await process.close()
    assert host.exec("pgrep -f '[b]in/.* watch'", check=False).stdout == ""


@pytest.mark.parametrize(("user", "root"), [("admin", True), ("ops", False), ("pwops", False)])
async def test_with_and_without_sudo(hosts: Hosts, user: str, root: bool) -> None:
    host = hosts["h1"]
    web(host)
    async with connected(host, user) as connection:
        process, lines = await connection.start("watch", CONFIG)
        hello = await until(lines, lambda m: m["kind"] == "hello")
        assert hello["privileged"] == root
        port = await until(lines, lambda m: m["kind"] == "ports")
        assert port["ports"]["web"]["state"] == ("ours" if root else "unknown")
        await process.close()
        if root:
            assert hello["where"].startswith("/var/lib/ddtree-console/bin/")
        else:
            assert hello["where"].startswith(f"/home/{user}/.cache/")
            assert "sudo" in connection.code.why
            assert "journal" in (await connection.ask("logs", {"unit": "web.service", "lines": 5}))[0]["cause"]


async def test_the_journal_by_cursor_and_a_gap_after_a_vacuum(hosts: Hosts) -> None:
    host = hosts["h1"]
    host.write("/etc/systemd/system/say.service", "[Service]\nType=oneshot\nExecStart=/bin/echo said\n")
    host.exec("systemctl daemon-reload && systemctl start say")
    ask = {"units": ["say.service"], "cursor": None, "tail": 50, "invocation": None}
    async with connected(host) as connection:
        process, lines = await connection.start("journal", ask)
        entry = await until(lines, lambda m: m.get("MESSAGE") == "said")
        assert entry["_SYSTEMD_UNIT"] == "say.service"
        await process.close()
        resumed = {**ask, "cursor": entry["__CURSOR"]}
        host.exec("systemctl start say")
        process, lines = await connection.start("journal", resumed)
        seen: list[dict[str, Any]] = []
        while not seen or seen[-1].get("MESSAGE") != "said":
            seen.append(await until(lines, lambda m: True))
        assert entry["__CURSOR"] not in [m.get("__CURSOR") for m in seen]
        assert not [m for m in seen if "_ddtree" in m]
        await process.close()
        host.exec("journalctl --rotate && journalctl --vacuum-size=1 && systemctl start say")
        process, lines = await connection.start("journal", resumed)
        assert "vacuumed" in (await until(lines, lambda m: True))["why"]
        await process.close()
    assert host.exec("pgrep journalctl", check=False).stdout == ""


async def test_a_cursor_of_nowhere(hosts: Hosts) -> None:
    host = hosts["h1"]
    web(host)
    async with connected(host) as connection:
        ask = {"units": ["web.service"], "cursor": "nonsense", "tail": 5, "invocation": None}
        _, lines = await connection.start("journal", ask)
        assert (await until(lines, lambda m: m.get("_ddtree") == "gap"))["why"]
        assert (await until(lines, lambda m: "MESSAGE" in m))["UNIT"] == "web.service"


async def test_a_killed_session_leaves_nothing_behind(hosts: Hosts) -> None:
    host = hosts["h1"]
    web(host)
    async with connected(host) as connection:
        ask = {"units": ["web.service"], "cursor": None, "tail": 5, "invocation": None}
        await connection.start("journal", ask)
        await connection.start("watch", CONFIG)
        host.exec("pkill -KILL -f '[s]shd: root@'")
        async with asyncio.timeout(5):
            await connection.transport.closed.wait()
    deadline = time.monotonic() + 5
    left = "?"
    while left and time.monotonic() < deadline:
        left = host.exec("pgrep -a journalctl; pgrep -f '[b]in/.* (watch|journal)'", check=False).stdout
    assert left == ""


async def test_checks_of_a_real_host(hosts: Hosts) -> None:
    host = hosts["h1"]
    web(host)
    async with connected(host) as connection:
        process, _ = await connection.start("watch", CONFIG)
        await process.close()
        found = {f["name"]: f for f in await connection.ask("check", {"services": [SLOT]})}
        assert (found["unit"]["state"], found["port"]["state"]) == ("ok", "ok")
        # systemd 252's verify answers 0 for a misspelt key: its words count
        host.write("/etc/systemd/system/web.service", UNIT + "Restrat=always\n")
        host.exec("systemctl daemon-reload")
        bad = {f["name"]: f for f in await connection.ask("check", {"services": [SLOT]})}["unit"]
        assert (bad["state"], "Restrat" in bad["evidence"]) == ("fail", True)
