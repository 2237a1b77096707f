"""Attempts of a service, newest first, and one attempt in full."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ddtree_console.services.api import HistoryEntry
from ddtree_console.ui.paint import Row, brief, columns, heading, host_text, row, wrap

OUTCOMES = {
    "committed": ("●", "committed", "good"),
    "serving_uncommitted": ("▲", "not committed", "warn"),
    "went_back": ("↻", "went back", "warn"),
    "went_way_back": ("↻", "to the way back", "warn"),
    "stopped": ("✖", "stopped", "bad"),
    "nothing_serves": ("✖", "nothing serves", "bad"),
    "left": ("✖", "left as it was", "bad"),
    "refused": ("✖", "refused", "bad"),
    "cut": ("✖", "cut by a reboot", "bad"),
}

HEADS = ("WHEN", "WHAT", "RELEASE", "PROFILE", "TOOK", "GOT TO", "OUTCOME")


def _sizes(wide: int) -> tuple[int, ...]:
    if wide < 40:
        return (0, 0, max(8, wide - 12), 0, 0, 0, 10)
    if wide < 100:
        return (11, 8, 12, 0, 6, 13, max(10, wide - 57))
    return (16, 8, 16, 24, 7, 20, max(12, wide - 99))


def items(entries: Sequence[HistoryEntry], wide: int) -> list[tuple[str, Row]]:
    """(tx, row) of each attempt, with a head."""
    sizes = _sizes(wide)
    out: list[tuple[str, Row]] = [("", ((" ", ""), *columns(sizes, [(h, "dim") for h in HEADS], right=(4,))))]
    form = "%Y-%m-%d %H:%M" if sizes[0] >= 16 else "%m-%d %H:%M"
    for e in entries:
        glyph, words, style = OUTCOMES.get(e.outcome, ("?", host_text(e.outcome, 40), "warn"))
        cells = (
            (time.strftime(form, time.localtime(e.started)), ""),
            (host_text(e.what, 20), ""),
            (host_text(f"{e.source or '–'} -> {e.target}", 60), ""),
            (host_text(e.profile, 60), ""),
            (brief(e.seconds), ""),
            (host_text(e.furthest, 60), ""),
            (f"{glyph} {words}", style),
        )
        out.append((e.tx, ((" ", ""), *columns(sizes, cells, right=(4,)))))
    if not entries:
        out.append(("", row(("  no attempt yet; d deploys", "dim"))))
    return out


def detail_rows(entry: HistoryEntry | None, wide: int) -> list[Row]:
    """Why it ended, what changed, who and why."""
    if entry is None:
        return []
    rows = [heading("ATTEMPT", host_text(entry.tx, 60), wide)]
    if entry.cause:
        rows += wrap(host_text(entry.cause), wide - 1, "  ", "bad" if entry.outcome != "committed" else "")
    rows.append(row(("  by   ", "dim"), host_text(entry.who or "–", 200)))
    if entry.reason:
        rows += wrap(host_text(f"reason: {entry.reason}"), wide - 1, "  ")
    for line in entry.changed:
        rows += wrap(host_text(line), wide - 3, "    ")
    if not entry.changed:
        rows.append(row(("  no change of profile recorded", "dim")))
    return rows
