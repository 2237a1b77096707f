"""The live console against a scripted host: what it sends, what it says, what it survives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ddtree_console.domain.plan import plan_from_json
from ddtree_console.domain.spec import Profile
from ddtree_console.services.console import LiveConsole
from ddtree_console.services.errors import HostError
from ddtree_console.services.plans import Operator
from tests.services.doubles import ScriptedHost, ScriptedLauncher, fleet

FLAGS = {"mem-fraction-static": 0.88, "context-length": 131072}
PROFILES = {
    "shadow": Profile(name="shadow", python="/opt/env/bin/python3", model="/models/m", flags=FLAGS),
    "linear": Profile(name="linear", engine="wrapper", python="/opt/env/bin/python3", model="/models/m"),
}


class Store:
    """Profiles in memory."""

    def __init__(self) -> None:
        self.known: dict[str, Profile] = dict(PROFILES)

    def profiles(self) -> Mapping[str, Profile]:
        return dict(self.known)

    def save(self, base: str, name: str, profile: Profile) -> Path:
        self.known[name] = profile
        return Path("profiles", f"{name}.yaml")


@asynccontextmanager
async def console(host: ScriptedHost, **options: Any) -> AsyncIterator[LiveConsole]:
    slots = options.pop("slots", {"fallback": "linear"})
    one = LiveConsole(
        fleet(PROFILES, profile="shadow", **slots),
        Store(),
        host.open,
        ScriptedLauncher,
        Operator("ops@laptop", "10.0.0.9"),
        **options,
    )
    task = asyncio.ensure_future(one.run())
    try:
        async with asyncio.timeout(10):
            while one.snapshot().hosts[0].link != "up":
                await one.changed(one.snapshot().serial)
        yield one
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(one: LiveConsole, true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await one.changed(one.snapshot().serial)


def event(n: int, kind: str, tx: str = "t1", **data: Any) -> dict[str, Any]:
    return {
        "kind": "tx",
        "unit": "s1.service",
        "event": {"v": 1, "tx": tx, "n": n, "t": float(n), "kind": kind, **data},
    }


def read_answer(**more: Any) -> dict[str, Any]:
    return {"unit": "s1.service", "text": "[Service]\nExecStart=/bin/old --port 30000\n", "drop_ins": [], **more}


async def test_a_plan_holds_all_that_the_host_needs() -> None:
    host = ScriptedHost()
    host.answers["submit"] = lambda plan: [{"ok": True, "tx": "t1"}]
    async with console(host) as one:
        done = await one.deploy("h1/s1", "shadow", hold=3.0, reason="try it", on_failure="stop")
    assert (done.key, done.tx) == ("h1/s1", "t1")
    plan = plan_from_json(host.calls[0][1])
    assert (plan.what, plan.to, plan.unit, plan.service, plan.port, plan.gpus) == (
        "deploy",
        "new",
        "s1.service",
        "s1",
        30000,
        (0,),
    )
    assert (plan.hold, plan.reason, plan.on_failure, plan.who, plan.origin) == (
        3.0,
        "try it",
        "stop",
        "ops@laptop",
        "10.0.0.9",
    )
    assert plan.new is not None
    assert plan.new.profile_name == "shadow"
    assert plan.new.set_flags["context-length"] == 131072
    assert "--mem-fraction-static" in plan.new.unit_text
    assert plan.way_back is not None
    assert (plan.way_back.profile_name, plan.way_back.engine) == ("linear", "wrapper")


async def test_an_edited_profile_is_deployed_without_being_saved() -> None:
    host = ScriptedHost()
    host.answers["submit"] = lambda plan: [{"ok": True, "tx": "t1"}]
    edited = Profile(name="shadow-2", python="/opt/env/bin/python3", model="/models/m", flags={"context-length": 4096})
    async with console(host) as one:
        await one.deploy("h1/s1", edited)
    assert plan_from_json(host.calls[0][1]).new.profile["flags"] == {"context-length": 4096}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("key", "profile", "words"), [("h1/s9", "shadow", "h1/s1"), ("h1/s1", "nope", "linear, shadow")]
)
async def test_unknown_names_are_input_errors_that_say_what_exists(key: str, profile: str, words: str) -> None:
    async with console(ScriptedHost()) as one:
        with pytest.raises(HostError) as caught:
            await one.deploy(key, profile)
    assert caught.value.code == 2
    assert words in caught.value.next_step


async def test_read_only_changes_nothing() -> None:
    host = ScriptedHost()
    async with console(host, read_only=True) as one:
        for change in (one.deploy("h1/s1", "shadow"), one.rollback("h1/s1"), one.adopt("h1", "u")):
            with pytest.raises(HostError) as caught:
                await change
            assert caught.value.code == 7
        assert (await one.preview_rollback("h1/s1")).refusal
    assert host.calls == []


async def test_preview_compares_with_the_unit_and_the_kept_profile() -> None:
    host = ScriptedHost()
    kept = {
        "release": "r3",
        "profile_name": "shadow",
        "profile": {"engine": "sglang", "flags": {"context-length": 131072}},
    }
    host.answers["read"] = lambda _: [read_answer(committed="r3", releases=[kept], edited=[])]
    async with console(host) as one:
        seen = await one.preview("h1/s1", "shadow")
    assert (seen.release_from, seen.profile, seen.on_failure) == ("r3", "shadow", "r3, then linear")
    assert ("flag", "mem-fraction-static") in {(d.where, d.name) for d in seen.diff_running}
    assert "context-length" not in {d.name for d in seen.diff_running}
    assert any(line.startswith("-ExecStart=/bin/old") for line in seen.unit_diff)
    assert seen.diff_stored == ()
    assert seen.refusals == ()
    assert [c[0] for c in host.calls] == ["read"]


async def test_preview_says_why_the_host_would_refuse() -> None:
    host = ScriptedHost()
    host.answers["read"] = lambda _: [read_answer(edited=["/etc/systemd/system/s1.service"])]
    async with console(host) as one:
        seen = await one.preview("h1/s1", "shadow")
        assert seen.release_from == "unmanaged"
        assert "edited by hand" in seen.refusals[0]
        assert seen.forceable
        host.watcher().put({"kind": "locks", "locks": {"s1.service": {"who": "eve", "from": "x", "why": "deploy"}}})
        await until(one, lambda: one.snapshot().hosts[0].services[0].lock != "")
        seen = await one.preview("h1/s1", "shadow")
        assert any("eve" in text for text in seen.refusals)
        assert not seen.forceable


async def test_the_effective_flags_of_the_server_count_as_what_runs() -> None:
    host = ScriptedHost()
    kept = {"release": "r3", "profile_name": "shadow", "profile": {"engine": "sglang", "flags": FLAGS}}
    host.answers["read"] = lambda _: [read_answer(committed="r3", releases=[kept], edited=[])]
    async with console(host) as one:
        # nobody listens: this console does not ask by itself
        host.watcher().put({"kind": "ports", "ports": {"s1": {"state": "nobody"}}})
        host.watcher().put({"kind": "units", "units": {"s1.service": {"active": "active", "invocation": "i1"}}})
        host.watcher().put(
            {"kind": "http", "service": "s1", "status": 200, "running": 4, "info": {"context_length": 32768}}
        )
        await until(one, lambda: one.snapshot().hosts[0].services[0].http.running == 4)
        seen = await one.preview("h1/s1", "shadow")
    assert seen.running_requests == 4
    change = next(d for d in seen.diff_running if d.name == "context-length")
    assert (change.old, change.new) == ("32768", "131072")


async def test_rollback_sends_one_line_to_a_command_that_waits_for_it() -> None:
    host = ScriptedHost()
    host.answers["submit"] = lambda plan: [{"ok": True, "tx": "t2"}]
    async with console(host) as one:
        seen = await one.preview_rollback("h1/s1")
        assert (seen.target, seen.refusal) == ("linear", "")
        began = time.perf_counter()
        done = await one.rollback("h1/s1")
        assert time.perf_counter() - began < 1  # at once; the rest is what a busy machine adds
        assert done.tx == "t2"
        assert host.newest("submit").sent
    plan = plan_from_json(host.calls[0][1])
    assert (plan.what, plan.to) == ("rollback", "way-back")


async def test_rollback_waits_for_no_slower_command_and_for_no_lost_connection() -> None:
    host = ScriptedHost()
    host.answers["submit"] = lambda plan: [{"ok": True, "tx": "t2"}]
    async with console(host, random=lambda: 0.0) as one:
        commands = one.monitor.hosts["h1"].commands
        slow = [await commands.arm("logs"), await commands.arm("logs")]
        await one.preview_rollback("h1/s1")
        async with asyncio.timeout(5):
            assert (await one.rollback("h1/s1")).tx == "t2"
        for command in slow:
            await command.close()
        await one.preview_rollback("h1/s1")
        for _ in range(5):
            await asyncio.sleep(0)  # the command starts
        assert host.newest("submit").sent == []
        host.cut()
        await until(one, lambda: host.connects == 2 and one.snapshot().hosts[0].link == "up")
        async with asyncio.timeout(5):
            assert (await one.rollback("h1/s1")).tx == "t2"
    assert len(host.calls) == 2


async def test_rollback_works_without_a_countdown_and_without_a_way_back_to_render() -> None:
    host = ScriptedHost()
    host.answers["submit"] = lambda plan: [{"ok": True, "tx": "t3"}]
    async with console(host, slots={}) as one:
        assert "way back" in (await one.preview_rollback("h1/s1")).refusal
        assert (await one.rollback("h1/s1", "r2")).tx == "t3"
    assert plan_from_json(host.calls[0][1]).way_back is None


async def test_rollback_asks_the_running_transaction() -> None:
    host = ScriptedHost()
    host.answers["request"] = lambda payload: [{"ok": True, "acked": True}]
    async with console(host) as one:
        host.watcher().put(event(0, "begin", what="deploy"))
        await until(one, lambda: one.snapshot().hosts[0].services[0].tx is not None)
        assert (await one.rollback("h1/s1")).tx == "t1"
        await one.request("h1/s1", "extend")
    assert [(c, p["request"], p["tx"], p["who"]) for c, p in host.calls] == [
        ("request", "back", "t1", "ops@laptop"),
        ("request", "extend", "t1", "ops@laptop"),
    ]


async def test_rollback_meets_a_transaction_that_it_had_not_heard_of() -> None:
    host = ScriptedHost()
    host.answers["submit"] = lambda plan: [
        {"ok": False, "code": 6, "cause": "locked", "next": "-", "holder": {"tx": "t9"}}
    ]
    host.answers["request"] = lambda payload: [{"ok": True, "acked": True}]
    async with console(host) as one:
        assert (await one.rollback("h1/s1")).tx == "t9"
    assert host.calls[-1][1]["request"] == "back"


async def test_rollback_begins_a_transaction_where_the_one_it_had_heard_of_has_ended() -> None:
    host = ScriptedHost()
    host.answers["request"] = lambda payload: [{"ok": False, "code": 7, "cause": "no transaction t1 runs", "next": "-"}]
    host.answers["submit"] = lambda plan: [{"ok": True, "tx": "t2"}]
    async with console(host) as one:
        host.watcher().put(event(0, "begin", what="deploy"))
        await until(one, lambda: one.snapshot().hosts[0].services[0].tx is not None)
        assert (await one.rollback("h1/s1")).tx == "t2"
    assert [c for c, _ in host.calls] == ["request", "submit"]


async def test_a_request_without_a_transaction_is_refused_here() -> None:
    host = ScriptedHost()
    async with console(host) as one:
        with pytest.raises(HostError) as caught:
            await one.request("h1/s1", "extend")
    assert (caught.value.code, host.calls) == (7, [])


async def test_following_survives_a_lost_connection_and_ends_at_the_outcome() -> None:
    host = ScriptedHost()
    async with console(host, random=lambda: 0.0) as one:
        seen: list[int] = []

        async def follow() -> None:
            async for got in one.follow("h1/s1", "t1"):
                seen.append(got.n)

        task = asyncio.ensure_future(follow())
        first = host.watcher()
        for n in range(3):
            first.put(event(n, "begin" if n == 0 else "note", text=str(n)))
        await until(one, lambda: len(one.monitor.hosts["h1"].events("s1.service", "t1") or []) == 3)
        host.cut()
        await until(one, lambda: host.connects == 2 and one.snapshot().hosts[0].link == "up")
        for n in range(5):
            host.watcher().put(event(n, "begin" if n == 0 else "note", text=str(n)))
        host.watcher().put(event(5, "outcome", state="committed"))
        async with asyncio.timeout(5):
            await task
    assert seen == [0, 1, 2, 3, 4, 5]


async def test_an_older_transaction_is_read_from_the_hosts_file() -> None:
    host = ScriptedHost()
    old = [event(n, k, tx="t0", state="went_back")["event"] for n, k in enumerate(("begin", "outcome"))]
    host.answers["events"] = lambda payload: old if payload["tx"] == "t0" else []
    async with console(host) as one:
        host.watcher().put(event(0, "begin", tx="t1"))
        await until(one, lambda: one.snapshot().hosts[0].services[0].tx is not None)
        kinds = [got.kind async for got in one.follow("h1/s1", "t0")]
    assert kinds == ["begin", "outcome"]


async def test_history_logs_and_checks_are_asked_of_the_host() -> None:
    host = ScriptedHost()
    host.answers["history"] = lambda payload: [
        {
            "tx": "t1",
            "what": "deploy",
            "wall": 5.5,
            "seconds": 61.0,
            "outcome": "went_back",
            "changed": ["flag a 1 -> 2"],
            "new": 1,
        }
    ]
    host.answers["logs"] = lambda payload: [
        {"__CURSOR": "c", "__REALTIME_TIMESTAMP": "1000000", "_SYSTEMD_UNIT": "s1.service", "MESSAGE": [104, 105]}
    ]
    host.answers["check"] = lambda payload: [{"name": "port", "state": "ok", "evidence": "free", "service": "s1"}]
    async with console(host) as one:
        entry = (await one.history("h1/s1"))[0]
        assert (entry.started, entry.outcome, entry.changed, entry.raw["new"]) == (
            5.5,
            "went_back",
            ("flag a 1 -> 2",),
            1,
        )
        line = (await one.logs("h1/s1", lines=5))[0]
        assert (line.text, line.when) == ("hi", 1.0)
        names = {c.name: c.state for c in await one.check("h1", "s1")}
    told = {"connection": "ok", "sudo": "ok", "python": "ok", "systemd": "ok", "s1: port": "ok"}
    # this host says nothing of the build
    assert names == {**told, **dict.fromkeys(("s1: build", "s1: flags", "s1: memory"), "unknown")}


async def test_adopting_keeps_the_unit_there_and_writes_a_profile_here() -> None:
    host = ScriptedHost()
    host.answers["read"] = lambda payload: [read_answer()]
    host.answers["adopt"] = lambda payload: [{"ok": True, "release": "r1"}]
    async with console(host) as one:
        name, path = await one.adopt("h1", "s1")
        assert (name, path) == ("s1", "profiles/s1.yaml")
        assert (await one.profiles())["s1"].verbatim is not None
    sent = host.calls[-1][1]
    assert (sent["unit"], sent["profile_name"], sent["way_back"]["profile_name"]) == ("s1.service", "s1", "linear")


async def test_the_journal_is_read_by_sequence_number() -> None:
    host = ScriptedHost()
    async with console(host) as one:
        await host.following.wait()
        assert host.newest("journal").sent[0]["units"] == ["s1.service"]
        for n in range(3):
            host.newest("journal").put({"__CURSOR": str(n), "_SYSTEMD_UNIT": "s1.service", "MESSAGE": str(n)})
        await host.newest("journal").queue.join()
        assert [line.text for line in one.journal("h1/s1", after=0)] == ["1", "2"]
        assert one.dropped("h1/s1") == 0
