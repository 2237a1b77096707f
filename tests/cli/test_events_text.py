"""A transaction told in a shell: its stalls once, its finding with every way out."""

from __future__ import annotations

from typing import Any

from ddtree_console.cli.events_text import Narrator
from ddtree_console.domain.events import Event
from ddtree_console.domain.findings.types import Evidence, Finding, Remedy


def told(*events: tuple[str, dict[str, Any]]) -> list[str]:
    narrator = Narrator("h1/s1")
    rows = [Event("t", n, "b", float(n), 0.0, kind, data) for n, (kind, data) in enumerate(events)]
    return [text.strip().partition("  ")[2].strip() for row in rows for text, _ in narrator.tell(row)]


def test_a_stall_is_told_once_and_what_moves_is_not() -> None:
    stuck = {"words": "stuck: rank 1 died, rank 0 waits", "stall": "stalled-dead-child"}
    well = {"words": "loading, 412 MB/s, about 3 min left", "stall": ""}
    lines = told(("progress", well), ("progress", stuck), ("progress", stuck), ("progress", well), ("progress", stuck))
    assert lines == ["▲ stuck: rank 1 died, rank 0 waits"] * 2


def test_a_verdict_has_its_finding_and_all_remedies() -> None:
    finding = Finding(
        "stalled-lock",
        "It waits for a lock.",
        evidence=(Evidence(3, "x"),),
        remedies=(Remedy("Remove it.", command="rm -f /c/lock"), Remedy("Wait.")),
        blames="attention-backend",
    )
    lines = told(("verdict", {"ok": False, "code": "stalled", "cause": "stuck", "finding": finding.to_json()}))
    assert lines == [
        "✖ stalled: stuck",
        "stalled-lock: It waits for a lock. (by the edit of attention-backend)",
        "remedy: Remove it. (run: rm -f /c/lock)",
        "remedy: Wait.",
    ]
    lines = told(("verdict", {"ok": False, "code": "port-taken", "cause": "held", "remedy": "stop it", "finding": 7}))
    assert lines == ["✖ port-taken: held", "remedy: stop it"]
