"""Text from a host: no markup, no control character, no bidi trick and no megabyte line gets through any screen."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddtree_console.domain.build import Build, BuildFlag, FlagMark
from ddtree_console.domain.findings.types import Edit, Evidence, Finding, Remedy
from ddtree_console.domain.snapshot import (
    Drift,
    FleetSnapshot,
    GpuProcess,
    GpuReport,
    HostSnapshot,
    HttpState,
    Listener,
    ReleaseState,
    ServiceSnapshot,
    UnitState,
)
from ddtree_console.domain.spec import Profile, Service
from ddtree_console.services.api import Check, DeployPreview, FieldDiff, HistoryEntry, JournalLine, Preflight
from ddtree_console.ui.paint import Row, fit, host_text, width, wrap
from ddtree_console.ui.views import (
    attempts,
    deploy,
    diff,
    finding,
    flagmarks,
    fleet,
    history,
    host,
    preflight,
    why,
)
from ddtree_console.ui.views.checks import check_rows
from tests.ui import canned, doubles
from tests.ui.helpers import make, press, screen_text

EVIL = (
    "[bold]x[/] [/nope] [@click=app.quit]y[/] \x1b[31mred\x1b]52;c;ZXZpbA==\x07"
    "\x1b]8;;http://e\x1b\\ \x9b2J\x00\r\n\u202e\u2066z\u200b"
)
CANARY = "canary-7f3a9c1e5b"
SECRET = f"--api-key {CANARY} HF_TOKEN={CANARY} Authorization: Bearer {CANARY}"
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


def evil_finding(text: str) -> Finding:
    """A finding where every free text is this one."""
    targets, ops = ("flag", "env", "unit", "profile", text), ("set", "raise", text)
    edits = tuple(Edit(target, text, op, text) for target in targets for op in ops)
    remedies = (Remedy(text, edits, text), Remedy(text, (), text))
    return Finding(text, text, 0.5, True, (Evidence(1, text),), remedies, (text,), text, text, text)


def evil_preflight(text: str) -> Preflight:
    """A preflight where every free text is this one."""
    checks = tuple(Check(text, state, text, text) for state in ("ok", "warn", "fail", "unknown", text))
    states = ("ok", "unknown", "ambiguous", "removed", "renamed", "deprecated", "bad-value", "not-known", text)
    marks = tuple(FlagMark(text, state, text, text) for state in states)
    flag = BuildFlag(text, (text,), text, text, (text,), text, text, text)
    versions = {"torch": text, text: text}
    build = Build(text, text, text, text, text, (flag,), versions, text, (text,), {"algorithm": text}, (text,), (text,))
    return Preflight(text, text, checks, build, marks, None, 1.0)


def evil_host(text: str) -> HostSnapshot:
    """A host where every free text is this one."""
    unit = UnitState(
        text, "loaded", "active", text, text, 3, text, 9, since=1.0, need_reload=True, drop_ins=(text,), fragment=text
    )
    lines = (
        {**canned.BEGIN, **dict.fromkeys(("who", "source", "target", "profile", "on_failure", "reason"), text)},
        canned.step("lock", detail=text),
        canned.step(text, "fail", detail=text, secs=1.0),
        canned.step("wait", "run"),
        canned.rung(text, "run", detail=text),
        {"kind": "progress", "words": text},
        canned.phase(text, "run", detail=text, done=1, total=3),
        canned.phase("graphs", "fail", detail=text),
        {
            "kind": "verdict",
            "ok": False,
            "code": text,
            "cause": text,
            "remedy": text,
            "evidence": [text],
            "exit": {text: text},
            "finding": evil_finding(text).to_json(),
        },
        {"kind": "back", "target": text, "profile": text, "why": text},
        {"kind": "drift", "flag": text, "asked": text, "effective": text},
        {"kind": "note", "text": text},
        {"kind": "outcome", "state": text, "serves": text, "detail": text},
    )
    service = ServiceSnapshot(
        "ct129/sglang-qwen",
        unit,
        Listener("foreign", text, 4, text, text),
        HttpState(text, 500, text, 0.1, text, text, 1, 2, 3.0, 4.0, text),
        ReleaseState(text, text, text, text, text, (text,), (text,), text),
        (Drift(text, text, text, True, text),),
        canned.tx(*lines),
        text,
        canned.NOW,
        evil_finding(text),
    )
    bad = canned.gpu(
        0, 1, 48, text, processes=(GpuProcess(1, 5, text, text, text),), missing={text: text}, throttle=(text,)
    )
    lost = replace(canned.gpu(1, 1, 48, text), fault=text)
    return HostSnapshot(
        "ct129",
        "up",
        text,
        2,
        canned.NOW,
        True,
        text,
        text,
        text,
        GpuReport(text, text, (bad, lost), text),
        (service,),
        canned.NOW,
    )


def all_rows(text: str, wide: int) -> list[Row]:
    """Every view of the evil host."""
    one = evil_host(text)
    service, now = one.services[0], canned.NOW
    slot = Service("ct129", "sglang-qwen", "u", 1, (0, 1))
    items = fleet.items(FleetSnapshot(1, now, (one,)), canned.FLEET, now)
    sizes = fleet.sizes(items, wide)
    rows: list[Row] = [fleet.item_row(i, sizes) for i in items] + [fleet.tiny_row(i, wide) for i in items]
    rows += [(fleet.detail(items[0], now),), (host.link_row(one, now),)]
    rows += host.gpu_rows(one.gpus, 1.0, wide)
    rows += host.unit_rows(service.unit, service, 1.0, wide, now) + host.http_rows(service, slot, 1.0, wide)
    assert service.tx is not None
    rows += deploy.body_rows(service.tx, 200.0, wide) + why.why_rows(items[0], wide)
    rows.append(((deploy.title(service.tx, service.key, 200.0), ""),))
    change = (FieldDiff(text, text, text, text),)
    preview = DeployPreview(text, text, text, text, text, change, change, ("+" + text,), 1, text, (text,), (text,))
    rows += diff.confirm_rows(preview, wide, False)
    entry = HistoryEntry("t", text, 1.0, 2.0, text, text, text, text, text, text, text, text, (text,))
    rows += [r for _, r in history.items([entry], wide)] + history.detail_rows(entry, wide)
    rows += attempts.chain_rows([replace(entry, raw={"finding": evil_finding(text).to_json()})], service.tx, wide)
    running = replace(service.tx, outcome="", tx="other", words="stuck: " + text)
    rows += attempts.chain_rows([entry], running, wide) + deploy.words_rows(running, wide)
    base = Profile(text, model=text, flags={text: text}, args=(text,), env={text: text})
    found = evil_finding(text)
    rows += finding.finding_rows(found, wide, base=base) + finding.finding_rows(found, wide, chosen=1)
    rows += why.why_rows(items[0], wide, finding=found, base=base, entries=[entry])
    rows += host.drift_rows(service.drift, wide, False) + host.finding_rows(service, wide)
    checked = evil_preflight(text)
    rows += preflight.preflight_rows(checked, checked.marks, wide, problem=text)
    rows += preflight.gate_rows(checked, wide, False, running=False)
    rows += preflight.gate_rows(None, wide, False, running=False, problem=text)
    rows += [(p,) for m in checked.marks for p in (flagmarks.short(m), flagmarks.sentence(m))]
    return rows + check_rows([Check(text, text, text, text)], wide)


@pytest.mark.parametrize("wide", [18, 100])
@pytest.mark.parametrize("text", [EVIL, "x" * 1_000_000, "漢字" * 400, "", "a\tb"])
def test_no_view_lets_controls_through_or_grows_without_limit(text: str, wide: int) -> None:
    rows = all_rows(text, wide)
    flat = "".join(t for r in rows for t, _ in r)
    assert not UNSAFE.search(flat)
    assert len(rows) < 30_000


@pytest.mark.parametrize("wide", [40, 160])
def test_no_view_shows_a_secret(wide: int) -> None:
    assert CANARY not in "".join(t for r in all_rows(SECRET, wide) for t, _ in r)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=st.text(max_size=80), wide=st.integers(1, 200))
def test_views_take_any_text_at_any_width(text: str, wide: int) -> None:
    rows = all_rows(text, max(18, wide))
    assert not UNSAFE.search("".join(t for r in rows for t, _ in r))


@given(text=st.text(max_size=60), cells=st.integers(0, 40))
def test_fit_fits(text: str, cells: int) -> None:
    assert width(((fit(host_text(text), cells), ""),)) == cells


@given(text=st.text(max_size=300), cells=st.integers(10, 60))
def test_wrap_loses_nothing_but_blanks(text: str, cells: int) -> None:
    clean = host_text(text)
    got = "".join(t for r in wrap(clean, cells) for t, _ in r)
    assert got.replace(" ", "") == clean.replace(" ", "")
    assert all(width(r) <= cells for r in wrap(clean, cells))


@pytest.mark.parametrize(
    "keys", [(), ("enter",), ("d",), ("x",), ("l",), ("R",), ("h",), ("c",), ("e",), ("question_mark",), ("a",)]
)
async def test_no_screen_crashes_or_leaks(keys: tuple[str, ...]) -> None:
    text = f"{EVIL} {SECRET} {'y' * 1_000_000}"
    double = doubles.DoubleConsole(FleetSnapshot(1, canned.NOW, (evil_host(text),)))
    double.lines = [JournalLine(i, canned.WALL, text, text, 6, text, text if i == 3 else "") for i in range(20)]
    double.history_is = (HistoryEntry(text, text, 1.0, 2.0, text, text, text, text, text, text, text, text, (text,)),)
    double.preview_is = replace(double.preview_is, command=text, warnings=(text,), refusals=(text,), on_failure=text)
    double.preflight_is = lambda key, profile: evil_preflight(text)
    app = make(double, countdown=3600.0)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, *keys)
        shown = screen_text(app)
        assert not UNSAFE.search(shown)
        assert CANARY not in shown
        app.tell(text)
        await press(pilot, "y")
        assert CANARY not in app.clipboard and not UNSAFE.search(app.clipboard)


async def test_a_notice_is_never_markup() -> None:
    app = make()
    async with app.run_test(notifications=True) as pilot:
        await press(pilot)
        app.tell("lost [/bold] [red]x")
        await press(pilot)
        assert "[/bold] [red]x" in screen_text(app)


def test_evidence_keeps_its_brackets() -> None:
    verdict = canned.tx(*canned.STARTED, canned.CRASH).attempts[0].verdict
    assert verdict is not None
    rows = deploy.verdict_rows(verdict, 120)
    assert "[bold]not markup[/]" in "".join(t for r in rows for t, _ in r)
