"""The incident file: from events, log lines and what a host keeps; nothing in it is markup or a secret."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.domain.events import Event
from ddtree_console.domain.findings.types import Evidence, Finding, Remedy
from ddtree_console.domain.snapshot import Gpu, GpuReport, HostSnapshot, HttpState, ServiceSnapshot, UnitState
from ddtree_console.domain.txview import fold_all
from ddtree_console.services import report, report_text
from ddtree_console.services.api import HistoryEntry, JournalLine

KEY = "sk-0123456789abcdef0123"
GIB = 1 << 30
FINDING = Finding(
    "kv-budget-too-small",
    "The weights leave no room for the KV cache.",
    0.9,
    True,
    (Evidence(3, "RuntimeError: Not enough memory."),),
    (Remedy("Raise it.", (), "true"),),
    blames="mem-fraction-static",
    phase="kv cache",
)


def events(**verdict: Any) -> list[Event]:
    told: list[tuple[str, dict[str, Any]]] = [
        ("begin", {"what": "deploy", "target": "r2", "profile": "small", "source": "r1", "who": "ana"}),
        ("step", {"step": "start", "state": "ok", "secs": 0.2, "invocation": "inv-2"}),
        ("phase", {"phase": "weights", "state": "ok", "secs": 68.0, "last_good": 70.0}),
        *(("progress", {"gpu": n * GIB, "words": "loading"}) for n in (0, 10, 40, 44, 44)),
        ("verdict", {"ok": False, "code": "fatal-log", "cause": "no room", "finding": FINDING.to_json(), **verdict}),
        ("back", {"target": "r1", "profile": "old", "why": "no room"}),
        ("progress", {"gpu": 30 * GIB}),
        ("outcome", {"state": "went_back", "detail": "r1 serves"}),
    ]
    return [Event("t1", n, "b", 100.0 + n, 1e9 + n, kind, data) for n, (kind, data) in enumerate(told)]


def incident(log: list[JournalLine], **more: Any) -> report.Incident:
    stream = events(evidence=["RuntimeError: Not enough memory."])
    view = fold_all(stream)
    assert view is not None
    series = report.memory_of(stream)
    starts = tuple(report.Start(a, log, series[i]) for i, a in enumerate(view.attempts))
    values: dict[str, Any] = {
        "host": HostSnapshot("h1", systemd="252", gpus=GpuReport("nvml", "580.1", (Gpu(0, "A6000", used=44 * GIB),))),
        "service": ServiceSnapshot("h1/s1", UnitState("s1.service", active="failed")),
        "view": view,
        "starts": starts,
        "history": [HistoryEntry("t1", "deploy", 1e9, 9, "r1", "r2", "small", "went_back", "kv cache", "no room", "ana",
                                 "", ("flag a 1 -> 2",), {"finding": FINDING.to_json()})],
        "profile": {"model": "/m", "flags": {"api-key": KEY}, "env": {"HF_TOKEN": {"secret": "hub"}}},
        "unit": f"[Service]\nExecStart=/bin/x --api-key {KEY}\n",
        "rendered": f"[Service]\nExecStart=/bin/y --api-key {KEY}\n",
        "versions": {"torch": "2.11.0+cu130"},
        "missing": ("log of r1: connection lost",),
        "made": 1e9,
    }  # fmt: skip
    return report.Incident("h1/s1", **{**values, **more})


def line(n: int, text: str) -> JournalLine:
    return JournalLine(n, 1e9 + n, "s1.service", text)


def test_it_holds_what_somebody_who_was_not_there_needs() -> None:
    log = [line(n, f"line {n}") for n in range(1000)]
    log[500] = line(500, "RuntimeError: Not enough memory.")
    text = report_text.render(incident(log))
    for wanted in (
        "# Incident: h1/s1",
        "2001-09-09 01:46:40 UTC",
        "went\\_back: r1 serves",
        "kv-budget-too-small",
        "caused by the edit of mem-fraction-static",
        "run: true",
        "3: RuntimeError: Not enough memory.",
        "| weights | ok | 68.0 | 70.0 |",
        "45,056 ####",
        "line 489",
        "torch | 2.11.0+cu130",
        "## Unit of that profile",
        "## Unit as systemd has it now",
        "Log of invocation inv-2",
        "log of r1: connection lost",
    ):
        assert wanted in text, wanted
    assert "line 300\n" not in text
    assert "lines left out" in text


def test_no_secret_and_a_secrets_name_is_none() -> None:
    text = report_text.render(incident([line(0, f"server_args=ServerArgs(api_key='{KEY}')")]))
    assert KEY not in text
    assert '"secret": "hub"' in text


def test_the_memory_curve_is_that_of_each_start() -> None:
    first, second = report.memory_of(events())
    assert [used // GIB for _, used in first] == [0, 10, 40, 44, 44]
    assert second == ((10.0, 30 * GIB),)
    assert [used // GIB for _, used in report_text.points(first)] == [0, 10, 40, 44, 44]
    many = tuple((float(n), n * GIB) for n in range(500))
    assert len(report_text.points(many)) <= report_text.POINTS
    assert report_text.points(()) == []


def test_what_the_server_says_of_itself_is_masked_too() -> None:
    service = ServiceSnapshot("h1/s1", http=HttpState(info={"api_key": KEY, "version": "0.5.12", "deep": {"x": KEY}}))
    text = report_text.render(incident([], service=service))
    assert KEY not in text
    assert '"version": "0.5.12"' in text


@given(st.lists(st.text(max_size=40), max_size=6), st.text(max_size=30))
def test_a_hosts_text_is_never_markup(texts: list[str], name: str) -> None:
    log = [line(n, text) for n, text in enumerate(texts)]
    text = report_text.render(incident(log, host=HostSnapshot("h1", systemd=name)))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    fence = ""
    for row in text.split("\n"):
        found = re.match(r"(`{3,})[a-z]*\Z", row)
        if found and not fence:
            fence = found.group(1)
        elif row == fence:
            fence = ""
    assert fence == "", "every block is closed"
