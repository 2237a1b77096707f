"""The chain of attempts since a start last held: what changed, how far it got, why it ended."""

from __future__ import annotations

from collections.abc import Sequence

from ddtree_console.domain.findings.types import from_json
from ddtree_console.domain.txview import TxView
from ddtree_console.services.api import HistoryEntry
from ddtree_console.ui.paint import Row, fit, heading, host_text, row, wrap
from ddtree_console.ui.views.deploy import PHASE_WORDS, RUNG_WORDS
from ddtree_console.ui.views.outcomes import OUTCOMES

MOST = 8
"""attempts of a chain that are shown"""
LINES = 3
"""lines of one cell"""


def chain(entries: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    """From the last start that held to the newest attempt, oldest first. entries: newest first."""
    out: list[HistoryEntry] = []
    for entry in entries[:MOST]:
        out.append(entry)
        if entry.outcome in ("committed", "serving_uncommitted") and len(out) > 1:
            break
    return out[::-1]


def why(entry: HistoryEntry) -> str:
    """The finding's sentence, else the verdict's."""
    finding = from_json(entry.raw.get("finding"))
    return host_text((finding.summary if finding is not None else "") or entry.cause)


def got_to(entry: HistoryEntry) -> str:
    """The furthest step as the deploy screen names it."""
    name = entry.furthest
    return host_text(PHASE_WORDS.get(name) or RUNG_WORDS.get(name) or name, 60) or "–"


def changed(entry: HistoryEntry) -> str:
    """What was edited against the attempt before, else what differs from the committed release."""
    found = entry.edited or entry.changed
    if found:
        return host_text("; ".join(c.removeprefix("flag ") for c in found))
    return "rolled back" if entry.what == "rollback" else "–"


def _cells(text: str, size: int, style: str) -> list[tuple[str, str]]:
    lines = ["".join(t for t, _ in r) for r in wrap(text, size)]
    if len(lines) > LINES:
        lines = [*lines[: LINES - 1], fit(" ".join(lines[LINES - 1 :]), size)]
    return [(fit(x, size), style) for x in lines]


def chain_rows(entries: Sequence[HistoryEntry], live: TxView | None, wide: int) -> list[Row]:
    """The table. entries: newest first. live: a transaction that may not be among them yet."""
    shown = chain(entries)
    running = live if live is not None and live.running and all(e.tx != live.tx for e in entries) else None
    if not shown and running is None:
        return []
    count = len(shown) + (running is not None)
    rows = [heading("ATTEMPTS", f"{count}, oldest first", wide)]
    if wide >= 84:
        first = min(20, max(8, *(len(e.target) for e in shown), 8))
        rest = wide - 3 - first - 1 - 14 - 1 - 2
        sizes = (first, rest * 2 // 5, 14, rest - rest * 2 // 5)
        head = ("RELEASE", "WHAT CHANGED", "GOT TO", "WHY IT ENDED")
        rows.append(((" " * 3, ""), *((fit(h, s) + " ", "dim") for h, s in zip(head, sizes, strict=True))))
    for entry in shown:
        rows += _wide(entry, sizes) if wide >= 84 else _narrow(entry, wide)
    if running is not None:
        attempt = running.attempt
        now = next((x.name for x in reversed(attempt.phases) if x.state == "run"), "") if attempt is not None else ""
        text = f"{running.target}  {running.profile}  runs now" + (f": {PHASE_WORDS.get(now, now)}" if now else "")
        rows.append(row((" ◐ ", "work"), (fit(host_text(text, 200), max(8, wide - 4)).rstrip(), "")))
    return rows


def _wide(entry: HistoryEntry, sizes: tuple[int, int, int, int]) -> list[Row]:
    glyph, words, style = OUTCOMES.get(entry.outcome, ("?", host_text(entry.outcome, 40), "warn"))
    good = style == "good"
    columns = (
        _cells(host_text(entry.target, 40), sizes[0], "bold"),
        _cells(changed(entry), sizes[1], ""),
        _cells(got_to(entry), sizes[2], ""),
        _cells(why(entry) or words, sizes[3], style if good or not why(entry) else ""),
    )
    rows: list[Row] = []
    for i in range(max(len(c) for c in columns)):
        mark = (f" {glyph} ", style) if i == 0 else ("   ", "")
        cells = [
            (c[i][0] + " ", c[i][1]) if i < len(c) else (" " * (size + 1), "")
            for c, size in zip(columns, sizes, strict=True)
        ]
        rows.append((mark, *cells))
    return rows


def _narrow(entry: HistoryEntry, wide: int) -> list[Row]:
    glyph, words, style = OUTCOMES.get(entry.outcome, ("?", host_text(entry.outcome, 40), "warn"))
    head = f"{host_text(entry.target, 40)}  got to {got_to(entry)}"
    rows = [row((f" {glyph} ", style), (fit(head, max(8, wide - 4)).rstrip(), "bold"))]
    if entry.edited or entry.changed:
        rows += wrap(changed(entry), wide - 1, "   ", "dim")[:2]
    return rows + wrap(why(entry) or words, wide - 1, "   ")[:2]
