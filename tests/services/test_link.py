"""One host's connection: what it installs, what it retries, what it never does by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ddtree_console.domain.spec import Host
from ddtree_console.services.commands import Commands
from ddtree_console.services.errors import HostError
from ddtree_console.services.link import FIRST_DELAY, LONGEST_DELAY, HostLink, LinkState, delay
from ddtree_console.transport.base import TransportError
from tests.services.doubles import Clock, ScriptedHost, ScriptedLauncher


class Log:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.states: list[LinkState] = []
        self.messages: list[Mapping[str, Any]] = []
        self.lines: list[bytes] = []
        self.requests: list[bool] = []
        self.news = asyncio.Event()

    def watcher_config(self) -> Mapping[str, Any]:
        return {"v": 1, "services": []}

    def journal_request(self, again: bool) -> Mapping[str, Any]:
        self.requests.append(again)
        self.news.set()
        return {"units": [], "cursor": "c" if again else None}

    def message(self, raw: Mapping[str, Any]) -> None:
        self.messages.append(raw)
        self.news.set()

    def journal(self, line: bytes) -> None:
        self.lines.append(line)
        self.news.set()

    def link_changed(self, state: LinkState) -> None:
        self.states.append(state)
        self.news.set()

    async def until(self, true: Any) -> None:
        async with asyncio.timeout(5):
            while not true():
                await self.news.wait()
                self.news.clear()


class Running:
    """A link that runs against a scripted host."""

    def __init__(self, host: ScriptedHost) -> None:
        self.host, self.log, self.clock = host, Log(), Clock()
        self.launchers: list[ScriptedLauncher] = []
        self.link = HostLink(
            Host("h1", address="h1.example"),
            host.open,
            self.launcher,
            self.log,
            self.clock,
            lambda: 1.0,
            self.clock.sleep,
        )

    def launcher(self, host: Host) -> ScriptedLauncher:
        self.launchers.append(ScriptedLauncher(host))
        return self.launchers[-1]

    async def up(self, link: str = "up") -> None:
        await self.log.until(lambda: self.log.states and self.log.states[-1].link == link)


@asynccontextmanager
async def running(host: ScriptedHost) -> AsyncIterator[Running]:
    one = Running(host)
    task = asyncio.ensure_future(one.link.run())
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_connects_and_passes_everything_on() -> None:
    host = ScriptedHost()
    async with running(host) as it:
        await it.up()
        host.watcher().put({"kind": "beat"})
        host.watcher().put(b"not json")
        host.watcher().put({"kind": "units", "units": {}})
        await it.log.until(lambda: len(it.log.messages) == 3)
        assert [m["kind"] for m in it.log.messages] == ["hello", "beat", "units"]
        await it.log.until(lambda: it.log.requests)
        host.newest("journal").put(b'{"__CURSOR":"c"}')
        await it.log.until(lambda: it.log.lines)
        assert it.log.states[-1].attempt == 0
    assert host.watcher().closed
    assert host.transport is not None and host.transport.closed.is_set()


async def test_installs_missing_host_code_once_and_tries_again() -> None:
    host = ScriptedHost()
    host.broken = [(2, b"python3: can't open file '/var/lib/x': [Errno 2] No such file or directory")]
    async with running(host) as it:
        await it.up()
        assert len(it.launchers[0].repairs) == 1
        assert host.connects == 1


async def test_refused_sudo_gives_a_read_only_link_that_says_why() -> None:
    host = ScriptedHost()
    host.broken = [(1, b"sudo: a password is required")]
    async with running(host) as it:
        await it.up("unprivileged")
        state = it.log.states[-1]
        assert not state.privileged
        assert state.error == "h1: read-only: sudo asks for a password"
        host.answers["submit"] = lambda payload: [{"ok": True, "tx": "t"}]
        with pytest.raises(HostError) as caught:
            await Commands(it.link).call("submit", {})
        assert caught.value.code == 7
        assert host.calls == []


@pytest.mark.parametrize("kind", ["unknown-key", "changed-key", "locked-key", "auth", "config"])
async def test_what_needs_a_person_is_tried_again_only_on_request(kind: str) -> None:
    host = ScriptedHost()
    host.refuse = [TransportError(kind, "h1", "connect", "because", "ssh h1")]
    async with running(host) as it:
        await it.up("refused")
        assert it.log.states[-1].retry_at is None
        assert it.log.states[-1].error == "h1: connect: because; ssh h1"
        for _ in range(20):
            await asyncio.sleep(0)
        assert host.connects == 1
        with pytest.raises(HostError) as caught:
            await it.link.ready("deploy")
        assert caught.value.code == 5
        it.link.retry()
        await it.up()
        assert host.connects == 2


async def test_backs_off_and_comes_back() -> None:
    host = ScriptedHost()
    host.refuse = [TransportError("timeout", "h1", "connect", f"try {i}", "wait") for i in range(9)]
    async with running(host) as it:
        await it.up()
        assert it.clock.slept[:9] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]
        downs = [s for s in it.log.states if s.link == "down"]
        assert [s.attempt for s in downs] == list(range(1, 10))
        assert all(s.retry_at is not None for s in downs)


def test_delay_is_capped_and_jittered() -> None:
    for attempt in range(40):
        low, high = delay(attempt, lambda: 0.0), delay(attempt, lambda: 1.0)
        assert low == high / 2
        assert FIRST_DELAY / 2 <= high <= LONGEST_DELAY


async def test_resumes_after_a_cut_connection() -> None:
    host = ScriptedHost()
    async with running(host) as it:
        await it.up()
        await it.log.until(lambda: it.log.requests == [False])
        host.cut()
        await it.log.until(lambda: it.log.requests == [False, True])
        assert host.connects == 2
        assert any(s.link == "down" and "connection lost" in s.error for s in it.log.states)


async def test_a_journal_follower_that_ends_is_started_again_on_the_same_connection() -> None:
    host = ScriptedHost()
    async with running(host) as it:
        await it.up()
        await it.log.until(lambda: it.log.requests == [False])
        host.newest("journal").finish(1)
        await it.log.until(lambda: it.log.requests == [False, True])
        assert host.connects == 1


async def test_a_watcher_that_dies_says_why() -> None:
    host = ScriptedHost()
    async with running(host) as it:
        await it.up()
        host.watcher().finish(1, b"Traceback\nMemoryError")
        await it.log.until(lambda: any("MemoryError" in s.error for s in it.log.states))


async def test_calls_wait_for_a_connection_that_was_lost_and_refusals_have_their_code() -> None:
    host = ScriptedHost()
    host.answers["submit"] = lambda p: [
        {"ok": False, "code": 6, "cause": "locked", "next": "wait", "holder": {"tx": "t1"}}
    ]
    host.answers["read"] = lambda p: [{"unit": p["unit"]}]
    host.answers["history"] = lambda p: []
    async with running(host) as it:
        commands = Commands(it.link)
        assert await commands.call("read", {"unit": "u"}) == {"unit": "u"}
        with pytest.raises(HostError) as caught:
            await commands.call("submit", {})
        assert caught.value.code == 6
        assert "locked" in str(caught.value)
        assert await commands.lines("history", {}) == []
        with pytest.raises(HostError):
            await commands.call("history", {})


async def test_an_armed_command_only_needs_its_payload() -> None:
    host = ScriptedHost()
    host.answers["submit"] = lambda p: [{"ok": True, "tx": p["name"]}]
    async with running(host) as it:
        await it.up()
        armed = await Commands(it.link).arm("submit")
        assert host.calls == []
        assert (await armed.fire({"name": "t7"}))["tx"] == "t7"
        assert host.newest("submit").closed
