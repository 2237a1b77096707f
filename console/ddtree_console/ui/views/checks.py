"""Checks as rows: glyph, word, evidence, and what to do; what is wrong comes first."""

from __future__ import annotations

from collections.abc import Sequence

from ddtree_console.services.api import Check
from ddtree_console.ui.paint import Row, fit, host_text, wrap

STATES = {
    "fail": ("✖", "failed", "bad"),
    "warn": ("▲", "warning", "warn"),
    "unknown": ("?", "not known", "dim"),
    "ok": ("✓", "ok", "good"),
}
WORD = 9
"""cells of the longest word"""


def worst_first(checks: Sequence[Check]) -> list[Check]:
    """Failed, warnings, not known, ok; each group in the order in which it came."""
    order = list(STATES)
    return sorted(checks, key=lambda c: order.index(c.state) if c.state in STATES else 2)


def counts(checks: Sequence[Check]) -> str:
    """1 failed · 12 ok."""
    found = [(word, sum(c.state == state for c in checks)) for state, (_, word, _) in STATES.items()]
    return " · ".join(f"{n} {word}" for word, n in found if n)


def short_name(check: Check, service: str) -> str:
    """Its name; on a screen about one service without that service's name before it."""
    return host_text(check.name.removeprefix(f"{service}: ") if service else check.name, 60)


def check_rows(checks: Sequence[Check], wide: int, service: str = "") -> list[Row]:
    """One check a row, with its remedy below where there is one. service: whose name the screen says already."""
    name_size = min(26 if wide >= 70 else 14, max([8, *(len(short_name(c, service)) for c in checks)]))
    word_size = WORD if wide >= 50 else 0
    left = 3 + name_size + 1 + (word_size + 1 if word_size else 0)
    room = max(12, wide - left - 1)
    rows: list[Row] = []
    for check in checks:
        glyph, word, style = STATES.get(check.state, ("?", host_text(check.state, 9), "dim"))
        head: Row = ((f" {glyph} ", style), (fit(short_name(check, service), name_size) + " ", ""))
        if word_size:
            head = (*head, (fit(word, word_size) + " ", style))
        evidence = check.evidence.removeprefix("not known, ") if check.state == "unknown" else check.evidence
        lines = wrap(host_text(evidence), room, "", "dim" if check.state == "ok" else "")
        rows.append((*head, *lines[0]))
        rows += [((" " * left, ""), *line) for line in lines[1:]]
        if check.remedy and check.state != "ok":
            rows += [((" " * left, ""), *r) for r in wrap("-> " + host_text(check.remedy), room, "", "bold")]
    return rows
