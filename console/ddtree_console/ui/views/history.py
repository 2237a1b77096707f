"""Attempts of a service, newest first, and one attempt in full."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ddtree_console.services.api import HistoryEntry
from ddtree_console.ui.paint import Row, brief, columns, heading, host_text, row, wrap
from ddtree_console.ui.views.attempts import changed, got_to, why
from ddtree_console.ui.views.outcomes import OUTCOMES

HEADS = ("WHEN", "WHAT", "RELEASE", "TOOK", "WHAT CHANGED", "GOT TO", "OUTCOME", "WHY IT ENDED")


def _sizes(wide: int) -> tuple[int, ...]:
    if wide < 40:
        return (0, 0, max(8, wide - 12), 0, 0, 0, 10, 0)
    if wide < 100:
        return (11, 8, 12, 6, 0, 13, max(10, wide - 57), 0)
    rest = wide - 11 - 8 - 14 - 6 - 14 - 17 - 9
    changed = rest * 9 // 20
    return (11, 8, 14, 6, changed, 14, 17, rest - changed)


def items(entries: Sequence[HistoryEntry], wide: int) -> list[tuple[str, Row]]:
    """(tx, row) of each attempt, with a head."""
    sizes = _sizes(wide)
    out: list[tuple[str, Row]] = [("", ((" ", ""), *columns(sizes, [(h, "dim") for h in HEADS], right=(3,))))]
    for e in entries:
        glyph, words, style = OUTCOMES.get(e.outcome, ("?", host_text(e.outcome, 40), "warn"))
        cells = (
            (time.strftime("%m-%d %H:%M", time.localtime(e.started)), ""),
            (host_text(e.what, 20), ""),
            (host_text(f"{e.source or '–'} -> {e.target}", 60), ""),
            (brief(e.seconds), ""),
            (changed(e), ""),
            (got_to(e), ""),
            (f"{glyph} {words}", style),
            (why(e), "dim" if style == "good" else ""),
        )
        out.append((e.tx, ((" ", ""), *columns(sizes, cells, right=(3,)))))
    if not entries:
        out.append(("", row(("  no attempt yet; d deploys", "dim"))))
    return out


def detail_rows(entry: HistoryEntry | None, wide: int) -> list[Row]:
    """Why it ended, what changed, who and why."""
    if entry is None:
        return []
    rows = [heading("ATTEMPT", host_text(f"{entry.profile} · {entry.tx}", 100), wide)]
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.started))
    rows.append(row(("  at   ", "dim"), f"{when}, {brief(entry.seconds)}"))
    ended = "" if entry.outcome == "committed" else "bad"
    if why(entry):
        rows += wrap(why(entry), wide - 1, "  ", ended)
    if entry.cause and host_text(entry.cause) != why(entry):
        rows += wrap(host_text(entry.cause), wide - 1, "  ", "dim")
    rows.append(row(("  by   ", "dim"), host_text(entry.who or "–", 200)))
    if entry.reason:
        rows += wrap(host_text(f"reason: {entry.reason}"), wide - 1, "  ")
    if entry.edited and entry.edited != entry.changed:
        rows.append(row(("  against the attempt before", "dim")))
        rows += [r for line in entry.edited for r in wrap(host_text(line), wide - 3, "    ")]
        if entry.changed:
            rows.append(row(("  against what was committed", "dim")))
    for line in entry.changed:
        rows += wrap(host_text(line), wide - 3, "    ")
    if not entry.changed and not entry.edited:
        rows.append(row(("  no change of profile recorded", "dim")))
    return rows
