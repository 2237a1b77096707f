"""Preflight over a scripted host: what its parts come to, what refuses, and what a part that fails leaves whole."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ddtree_console.domain.build import Build, FlagMark
from ddtree_console.domain.memory.types import Estimate, Term
from ddtree_console.domain.spec import Profile, Speculative
from ddtree_console.services import builds, compare, preflight, verdicts
from ddtree_console.services.console import LiveConsole
from ddtree_console.services.plans import Operator
from ddtree_console.services.preflight import ChecksFailed
from tests.services.doubles import ScriptedHost, ScriptedLauncher, fleet

GIB = 1 << 30
PROFILE = Profile(
    "p1", python="/opt/env/bin/python3", user="serve", model="/models/m", flags={"mem-fraction-static": 0.8}
)
WAY_BACK = Profile("linear", engine="generic", command=("/bin/server", "--port", "1"))
PROFILES = {"p1": PROFILE, "linear": WAY_BACK}
BUILD = {
    "engine": "sglang", "release": "0.5.12", "python": "/opt/env/bin/python3", "package": "/opt/env/sglang",
    "source": "ast", "versions": {"torch": "2.9.1+cu128"}, "patched": ["sglang/srt/x.py"],
    "flags": [{"name": n} for n in ("model-path", "host", "port", "context-length", "mem-fraction-static")],
}  # fmt: skip
GPU = {"index": 0, "name": "H200", "total": 100 * GIB, "used": 0, "free": 100 * GIB, "processes": []}
FACTS = {
    "gpus": {"driver": "580.1", "cuda": "13.0", "archs": {"0": 90}, "report": {"source": "nvml", "gpus": [GPU]}},
    "environment s1": {"packages": {"torch": "2.9.1+cu128"}, "python": "3.12.3", "needs": {"orjson": ""}, "cuda": {}},
}
OK = {"name": "port", "state": "ok", "evidence": "30000 is free", "remedy": "", "service": "s1"}
TAKEN = {"name": "port", "state": "fail", "evidence": "taken by pid 9", "remedy": "stop it", "service": "s1"}


class Store:
    """Profiles in memory."""

    def profiles(self) -> Mapping[str, Profile]:
        return PROFILES

    def save(self, base: str, name: str, profile: Profile) -> object:
        raise NotImplementedError(name)


def answering(*checks: Mapping[str, Any]) -> ScriptedHost:
    """A host that says this of the slot, and of its build and models."""
    host = ScriptedHost()
    host.answers["check"] = lambda p: [*checks, {"facts": FACTS}]
    host.answers["inspect"] = lambda p: [BUILD]
    host.answers["model"] = lambda p: [{"models": [{"path": "/models/m", "config": {}, "problems": ["no config"]}]}]
    host.answers["submit"] = lambda p: [{"ok": True, "tx": "t1"}]
    return host


@contextlib.asynccontextmanager
async def console(host: ScriptedHost) -> AsyncIterator[LiveConsole]:
    """A console that follows it."""
    spec = fleet(PROFILES, profile="p1", fallback="linear")
    one = LiveConsole(spec, Store(), host.open, ScriptedLauncher, Operator("ann@desk", "desk"))
    running = asyncio.ensure_future(one.run())
    try:
        await asyncio.wait_for(host.started.wait(), 5)
        yield one
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def called(host: ScriptedHost, command: str) -> list[dict[str, Any]]:
    return [payload for name, payload in host.calls if name == command]


async def test_the_host_is_asked_with_the_very_unit_that_would_start() -> None:
    host = answering(OK)
    async with console(host) as one:
        found = await one.preflight("h1/s1", "p1")
    (asked,) = called(host, "check")[0]["services"]
    assert (asked["service"], asked["unit"], asked["port"], asked["gpus"]) == ("s1", "s1.service", 30000, [0])
    assert "User=serve" in asked["unit_text"]
    assert "/opt/env/bin/python3 -m sglang.launch_server" in asked["unit_text"]
    assert asked["way_back"]["name"] == "linear"
    assert "ExecStart=/bin/server" in asked["way_back"]["unit_text"]
    states = {c.name: c.state for c in found.checks}
    assert (states["port"], states["flags"], states["memory"], states["patched files"]) == (
        "ok", "ok", "unknown", "warn",
    )  # fmt: skip
    assert found.failed == ()
    assert found.build.release == "0.5.12"
    assert [m.name for m in found.marks] == ["mem-fraction-static"]


async def test_an_edited_profile_is_judged_without_the_host() -> None:
    host = answering(OK)
    async with console(host) as one:
        assert one.forecast("h1/s1", PROFILE) == ((), None)
        await one.preflight("h1/s1", "p1")
        before = len(host.calls)
        wrong = Profile("p1", python=PROFILE.python, model="/models/m", flags={"tree-budget": 3})
        marks, _ = one.forecast("h1/s1", wrong)
        assert [(m.name, m.state) for m in marks] == [("tree-budget", "unknown")]
        other = Profile("p1", python="/other/python3", model="/models/m", flags={"tree-budget": 3})
        assert [m.state for m in one.forecast("h1/s1", other)[0]] == ["not-known"]
        assert len(host.calls) == before


@pytest.mark.parametrize("part", ["check", "inspect", "model"])
async def test_a_part_that_cannot_be_told_says_why_and_leaves_the_rest(part: str) -> None:
    host = answering(OK)
    host.answers[part] = lambda p: [{"ok": False, "code": 5, "cause": "the disk hangs", "next": "wait"}]
    async with console(host) as one:
        found = await one.preflight("h1/s1", "p1")
    said = [c for c in found.checks if "the disk hangs" in c.evidence]
    assert [c.state for c in said] == ["unknown"]
    assert said[0].evidence.startswith("not known, because")
    assert found.failed == ()
    assert len(found.checks) > 5


async def test_a_failed_check_refuses_and_a_reason_overrides_it() -> None:
    host = answering(TAKEN)
    async with console(host) as one:
        with pytest.raises(ChecksFailed) as caught:
            await one.deploy("h1/s1", "p1")
        assert (caught.value.code, [c.name for c in caught.value.failed]) == (7, ["port"])
        assert "taken by pid 9" in str(caught.value)
        assert called(host, "submit") == []
        sent = await one.deploy("h1/s1", "p1", force=True, reason="it goes by itself")
    assert sent.tx == "t1"
    (plan,) = called(host, "submit")
    assert (plan["force"], plan["reason"]) == (True, "it goes by itself")


async def test_a_flag_that_the_build_does_not_take_refuses_too() -> None:
    host = answering(OK)
    async with console(host) as one:
        bad = Profile("bad", python=PROFILE.python, model="/models/m", flags={"mem-fraction": 0.8, "tree-budget": 3})
        with pytest.raises(ChecksFailed, match="tree-budget"):
            await one.deploy("h1/s1", bad)


async def test_a_host_that_cannot_be_checked_does_not_block() -> None:
    host = ScriptedHost()
    host.answers["submit"] = lambda p: [{"ok": True, "tx": "t1"}]
    async with console(host) as one:
        assert (await one.deploy("h1/s1", "p1")).tx == "t1"


async def test_the_build_spells_an_intent_that_the_profile_leaves_open() -> None:
    flags = [
        {"name": n} for n in ("model-path", "host", "port", "speculative-algorithm", "speculative-draft-model-path")
    ]
    budget = {"name": "speculative-ddtree-budget", "kind": "int"}
    ddtree = {"algorithm": "DDTREE", "flags": ["speculative-ddtree-budget"]}
    told = {**BUILD, "flags": [*flags, budget], "algorithms": ["DFLASH", "DDTREE"], "ddtree": ddtree}
    host = answering(OK)
    host.answers["inspect"] = lambda p: [told]
    intent = Speculative("ddtree", budget=15, draft="/models/d")
    async with console(host) as one:
        tree = Profile("tree", python=PROFILE.python, model="/models/m", speculative=intent)
        found = await one.preflight("h1/s1", tree)
        assert found.failed == (), found.failed
        await one.deploy("h1/s1", tree)
    assert "--speculative-ddtree-budget 15" in called(host, "submit")[0]["new"]["unit_text"]
    assert "--speculative-ddtree-budget 15" in called(host, "check")[0]["services"][0]["unit_text"]


@pytest.mark.parametrize(
    ("flags", "state", "evidence", "remedy"),
    [
        ({"attention-backend": "triton"}, "ok", "no flag that it is known to refuse", ""),
        ({}, "warn", "a Hopper GPU gets fa3", "set --attention-backend triton"),
        ({"attention-backend": "fa3"}, "fail", "only triton applies a tree's mask", "speculative kind linear"),
        (
            {"attention-backend": "triton", "tp-size": 2},
            "fail",
            "tensor parallel: --tp-size 2",
            "--tp-size 1 where one",
        ),
    ],
)
async def test_what_the_plug_in_refuses_is_a_check(
    flags: Mapping[str, Any], state: str, evidence: str, remedy: str
) -> None:
    tree = replace(PROFILE, dialect="plugin-0.5.12", flags=flags, speculative=Speculative("ddtree", True, 31, "/d"))
    async with console(answering(OK)) as one:
        found = await one.preflight("h1/s1", tree)
    (said,) = [c for c in found.checks if c.name == "plug-in"]
    assert said.state == state and evidence in said.evidence and remedy in said.remedy
    assert verdicts.plugin(replace(tree, dialect="stock-0.5.12")) == []


MARKS: Sequence[tuple[tuple[FlagMark, ...], list[tuple[str, str, str]]]] = [
    ((FlagMark("a", "ok"),), [("flags", "ok", "")]),
    ((FlagMark("a", "renamed", "b", "a is b now"),), [("flags", "fail", "write --b for --a")]),
    ((FlagMark("a", "unknown"), FlagMark("c", "ok")), [("flags", "fail", "correct or leave out --a")]),
    ((FlagMark("a", "deprecated", "b", "use b"),), [("flags", "warn", "write --b for --a")]),
    ((FlagMark("a", "not-known", "", "why"),), [("flags", "unknown", "")]),
    ((FlagMark("a", "partial", "b", "half"),), [("flags", "ok", ""), ("graphs", "warn", "add --b")]),
]


@pytest.mark.parametrize(("marks", "expected"), MARKS)
def test_marks_as_checks(marks: tuple[FlagMark, ...], expected: list[tuple[str, str, str]]) -> None:
    assert [(c.name, c.state, c.remedy) for c in verdicts.flags(marks, Build())] == expected


@pytest.mark.parametrize(
    ("estimate", "state", "said"),
    [
        (Estimate("fits", tokens=1000, requests=4), "ok", "1,000 tokens in the pool, 4 requests at once"),
        (Estimate("tight", "graphs", (Term("graphs", 2 * GIB),)), "warn", "tight: graphs decides (2.0 GiB)"),
        (Estimate("does not fit", "draft", (Term("draft", GIB),)), "fail", "does not fit: draft decides (1.0 GiB)"),
        (Estimate(problems=("no config.json",)), "unknown", "not known, because no config.json"),
    ],
)  # fmt: skip
def test_the_estimate_as_a_check(estimate: Estimate, state: str, said: str) -> None:
    (check,) = verdicts.memory(estimate)
    assert (check.state, check.evidence) == (state, said)
    assert bool(check.remedy) == (state in ("warn", "fail"))
    assert verdicts.memory(None) == []


def test_two_environments_side_by_side() -> None:
    host = ("host", "driver")
    a = compare.Side(
        "a/s", {host: "550.54"}, {"torch": "2.9.1+cu128", "same": "1"}, {"orjson": "", "xgrammar": ">=0.1.20"}
    )
    b = compare.Side(
        "b/s", {host: "580.95"}, {"torch": "2.9.1+cu130", "same": "1", "orjson": "3.10", "xgrammar": "0.1.21"}, {}
    )
    found = compare.compare(a, b)
    differing = {(r.name, r.a, r.b) for r in found.rows if r.differs}
    assert differing == {
        ("driver", "550.54", "580.95"), ("torch", "2.9.1+cu128", "2.9.1+cu130"),
        ("orjson", compare.ABSENT, "3.10"), ("xgrammar", compare.ABSENT, "0.1.21"),
    }  # fmt: skip
    assert [(o.name, o.pin, o.version) for o in found.offers] == [
        ("orjson", "", "3.10"),
        ("xgrammar", ">=0.1.20", "0.1.21"),
    ]
    assert compare.compare(b, a).offers == ()


async def test_the_two_sides_are_asked_of_their_hosts() -> None:
    host = answering(OK)
    async with console(host) as one:
        found = await one.compare("h1/s1", "h1/s1")
    assert [r for r in found.rows if r.differs] == []
    rows = {(r.part, r.name): r.a for r in found.rows}
    assert rows["host", "driver"] == "580.1"
    assert rows["host", "GPUs"] == "1x H200"
    assert rows["package", "torch"] == "2.9.1+cu128"
    assert rows["patched", "sglang/srt/x.py"] == "patched"


async def test_accepted_drift_is_told_to_the_host_as_it_was_seen() -> None:
    host = answering(OK)
    host.answers["accept-drift"] = lambda p: [{"ok": True, "accepted": "x"}]
    begin = {"v": 1, "tx": "t1", "n": 0, "boot": "b", "t": 0.0, "wall": 0.0, "kind": "begin", "what": "deploy"}
    seen = {"flag": "context-length", "asked": "8192", "effective": "4096"}
    async with console(host) as one:
        host.watcher().put({"kind": "tx", "unit": "s1.service", "event": begin})
        host.watcher().put({"kind": "tx", "unit": "s1.service", "event": {**begin, "n": 1, "kind": "drift", **seen}})
        async with asyncio.timeout(5):
            snapshot = one.snapshot()
            while not snapshot.hosts[0].services[0].drift:
                snapshot = await one.changed(snapshot.serial)
        await one.accept_drift("h1/s1")
    assert called(host, "accept-drift") == [{"unit": "s1.service", "drift": [seen], "who": "ann@desk"}]


async def test_a_whole_host_is_asked_in_one_question() -> None:
    host = answering(OK)
    async with console(host) as one:
        found = await one.check("h1")
    states = {c.name: c.state for c in found}
    assert (states["connection"], states["s1: port"], states["s1: flags"], states["s1: memory"]) == (
        "ok", "ok", "ok", "unknown",
    )  # fmt: skip
    assert len(called(host, "check")) == 1


async def test_a_deployment_right_after_a_preflight_asks_only_what_changes_in_a_second() -> None:
    host = answering(OK)
    async with console(host) as one:
        await one.preflight("h1/s1", "p1")
        host.calls.clear()
        await one.deploy("h1/s1", "p1")
        assert [command for command, _ in host.calls] == ["check", "submit"]
        host.calls.clear()
        host.answers["check"] = lambda p: [TAKEN]
        with pytest.raises(ChecksFailed):
            await one.deploy("h1/s1", "p1")
        # nothing is refused for what was so a minute ago
        assert sorted(command for command, _ in host.calls) == ["check", "check", "inspect", "model"]
        host.answers["check"] = lambda p: [OK]
        host.calls.clear()
        await one.deploy("h1/s1", replace(PROFILE, model="/models/other"))
        assert {command for command, _ in host.calls} == {"check", "inspect", "model", "submit"}


async def test_a_build_that_takes_too_long_leaves_the_checks_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(commands: Any, profile: Profile) -> Build:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(builds, "inspect", never)
    monkeypatch.setattr(preflight, "GATE_S", 0.1)
    host = answering(TAKEN)
    async with console(host) as one:
        with pytest.raises(ChecksFailed) as caught:
            await one.deploy("h1/s1", "p1")
        assert [c.name for c in caught.value.failed] == ["port"]
        host.answers["check"] = lambda p: [OK]
        assert (await one.deploy("h1/s1", "p1")).tx == "t1"
