"""The story lived by its findings: each attempt ends with the right one at once, and its remedy is the next attempt."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pytest

from ddtree_console.domain.events import Event
from ddtree_console.domain.findings.apply import make
from ddtree_console.domain.findings.types import Finding, from_json
from ddtree_console.domain.service_state import service_state
from ddtree_console.domain.spec import Fleet, Profile
from ddtree_console.services.errors import HostError
from ddtree_console.services.report import report
from tests.contract.consoles import Screen, fleet_of, screen
from tests.contract.real import RealHost

KEY = "sk-0123456789abcdef0123"


async def story_fleet(host: RealHost, speed: float = 300) -> Fleet:
    """That host as the story's ct129: what its server does depends on flags and environment."""
    fleet = await fleet_of(host)
    quick = fleet.profiles["quick"]
    rules = str(PurePosixPath(quick.command[2]).parent / "conditions.yaml")
    where = ("--conditions", rules, "--host-name", "ct129", "--speed", f"{speed:g}", "--children", "1")
    flags = {"mem-fraction-static": 0.88, "context-length": 131072, "attention-backend": "triton", "api-key": KEY}
    shadow = replace(quick, name="shadow", command=(*quick.command[:3], *where), flags=flags)
    return replace(fleet, profiles={"quick": quick, "shadow": shadow})


async def attempt(see: Screen, wanted: Profile) -> tuple[list[Event], float | None, Finding | None]:
    """Deploys it to its end: events, seconds from the decisive line in the journal to the console, the finding."""
    anyway: dict[str, Any] = {"force": True, "reason": "a replayed server: there is no model on this host"}
    sent = await see.console.deploy(see.key, wanted, on_failure="stop", hold=0.2, **anyway)
    events, seen = [], None
    async with asyncio.timeout(90):
        async for event in see.console.follow(see.key, sent.tx):
            events.append(event)
            if event.kind == "verdict":
                seen = time.time()
    verdict = next((e for e in events if e.kind == "verdict"), None)
    assert verdict is not None, [e.line() for e in events]
    finding = from_json(verdict.data.get("finding"))
    if finding is None or verdict.data["ok"] or seen is None:
        return events, None, finding
    decisive = finding.evidence[0].text
    start = next(e for e in events if e.kind == "step" and e.data.get("invocation"))
    lines = await see.console.logs(see.key, lines=4000, invocation=start.data["invocation"])
    written = max(line.when for line in lines if decisive in line.text)
    return events, seen - written, finding


OWN = {
    "id": "our-shape",
    "slug": "cuda-graph-capture-crash",
    "any": ["'shape' object is not subscriptable"],
    "strength": 99,
    "summary": "Our own model code: see ticket 12.",
    "remedies": [{"text": "Without it.", "edits": [{"target": "flag", "name": "disable-cuda-graph", "value": True}]}],
}
"""what the story's operator did about the second attempt, as a rule of his own"""


async def frozen_and_thawed(see: Screen, host: RealHost) -> None:
    """The scheduler of the service that serves is stopped: /v1/models still answers, and the console is not fooled."""
    well = await see.until(lambda h: h.services[0].http.status == 200 and h.services[0].finding is None)
    assert well.services[0].unit is not None
    main = well.services[0].unit.main_pid
    children = f"read -r children < /proc/{main}/task/{main}/children"
    await host.exec(f"{children}; kill -STOP $children")
    ill = await see.until(lambda h: h.services[0].finding)
    assert ill.services[0].finding is not None
    assert ill.services[0].finding.slug == "zombie-service"
    assert ill.services[0].http.status == 200
    state = service_state(ill, ill.services[0], see.console.snapshot().now)
    assert (state.text, state.detail) == ("▲ degraded", ill.services[0].finding.summary)
    await host.exec(f"{children}; kill -CONT $children")
    await see.until(lambda h: h.services[0].finding is None)


async def test_three_attempts_three_findings_and_each_remedy_leads_on(real_host: RealHost) -> None:
    story = real_host.kind == "sandbox"  # and on the other what the builtin rules know
    async with screen(await story_fleet(real_host), rules=[OWN] if story else ()) as see:
        await see.up()
        now, found, late, edited = see.console.fleet.profiles["shadow"], [], [], []
        for _ in range(4):
            events, seconds, finding = await attempt(see, now)
            edited.append(next(e.data["edited"] for e in events if e.kind == "begin"))
            if events[-1].data["state"] == "committed":
                break
            assert finding is not None, events[-3:]
            assert seconds is not None
            found.append((finding.slug, finding.phase))
            late.append(seconds)
            if finding.slug == OWN["slug"]:
                assert (finding.rule == OWN["id"]) is story, "an operator's rule travels with the plan"
            now = make(now, next(remedy for remedy in finding.remedies if remedy.edits)).profile
            assert not any(KEY in event.line() for event in events), "a secret never travels"
        assert events[-1].data["state"] == "committed", events[-1]
        assert found == [
            ("kv-budget-too-small", "kv cache"),
            ("cuda-graph-capture-crash", "graphs"),
            ("kernel-arch-missing", "piecewise graphs" if story else "graphs"),
        ]
        assert edited[1:] == [
            ["flag mem-fraction-static 0.88 -> 0.93"],
            ["flag disable-cuda-graph unset -> true" if story else "flag attention-backend triton -> flashinfer"],
            ["env TRITON_PTXAS_PATH unset -> /usr/local/cuda/bin/ptxas"],
        ]
        history: list[Any] = [entry.raw for entry in await see.console.history(see.key)]
        assert [entry["finding"].get("slug", "") for entry in reversed(history)] == [*(slug for slug, _ in found), ""]
        print("seconds from line to console", late)
        if real_host.kind == "lab":
            assert max(late) < 1.0, late
        await frozen_and_thawed(see, real_host)
        text = await report(see.console, see.key, history[-1]["tx"])
        assert KEY not in text
        for wanted in (
            "kv-budget-too-small",
            "flag mem-fraction-static 0.88 -> 0.93",
            "RuntimeError: Not enough memory",
        ):
            assert wanted.replace("_", "\\_").replace(">", "\\>") in text or wanted in text, text
        with pytest.raises(HostError, match="no transaction"):
            await report(see.console, see.key, "20000101-000000-0000")
