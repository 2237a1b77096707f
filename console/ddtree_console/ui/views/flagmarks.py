"""What a build makes of the form's flags, as words beside each row and as a list."""

from __future__ import annotations

from collections.abc import Sequence

from ddtree_console.domain.build import Build, FlagMark
from ddtree_console.domain.build import flag as flag_of
from ddtree_console.domain.spec import Profile
from ddtree_console.ui.paint import Piece, Row, host_text, row, width, wrap

STATES = {
    "unknown": ("✖", "unknown", "bad"),
    "removed": ("✖", "removed", "bad"),
    "renamed": ("✖", "renamed", "bad"),
    "ambiguous": ("✖", "ambiguous", "bad"),
    "bad-value": ("✖", "bad value", "bad"),
    "partial": ("▲", "does less", "warn"),
    "deprecated": ("▲", "deprecated", "warn"),
    "not-known": ("?", "not known", "dim"),
    "ok": ("✓", "ok", "good"),
}
BAD = frozenset(state for state, (_, _, style) in STATES.items() if style == "bad")


ORDER = tuple(STATES)
INTENT = {
    "speculative": "speculative kind",
    "speculative-algorithm": "speculative kind",
    "speculative-draft-model-path": "speculative draft",
    "speculative-draft-model": "speculative draft",
    "speculative-ddtree-budget": "speculative budget",
    "speculative-num-draft-tokens": "speculative budget",
}
"""field of the form that a flag comes from where the profile does not set it itself."""


def by_field(marks: Sequence[FlagMark], profile: Profile) -> dict[str, FlagMark]:
    """The worst mark of each field of the form."""
    out: dict[str, FlagMark] = {}
    for mark in marks:
        field = mark.name if mark.name in profile.flags else INTENT.get(mark.name, mark.name)
        old = out.get(field)
        if old is None or _rank(mark) < _rank(old):
            out[field] = mark
    return out


def _rank(mark: FlagMark) -> int:
    return ORDER.index(mark.state) if mark.state in STATES else 0


def _wanted(mark: FlagMark) -> str:
    return f"--{host_text(mark.wanted, 120).lstrip('-')}" if mark.wanted else ""


def short(mark: FlagMark | None) -> Piece:
    """✖ renamed: --x, for the form; a flag that is well says only what it does, and most say nothing."""
    if mark is None:
        return "", ""
    glyph, word, style = STATES.get(mark.state, ("?", host_text(mark.state, 20), "dim"))
    if mark.state == "not-known":
        return f"{glyph} not checked", style
    if mark.state == "ok":
        return (host_text(mark.text, 200), "dim") if mark.text else ("", "")
    rest = " · ".join(x for x in (_wanted(mark), host_text(mark.text, 200)) if x)
    return f"{glyph} {word}" + (f": {rest}" if rest else ""), style


def absent(name: str, build: Build | None) -> bool:
    """Whether the build is known to have no such flag: said of a field that is not set."""
    return build is not None and build.source == "ast" and bool(build.flags) and flag_of(build, name) is None


def sentence(mark: FlagMark | None) -> Piece:
    """All that is known of it, for the help line."""
    if mark is None or (mark.state == "ok" and not mark.text):
        return "", ""
    glyph, word, style = STATES.get(mark.state, ("?", host_text(mark.state, 20), "dim"))
    wanted = f"this build wants {_wanted(mark)}" if mark.wanted else ""
    parts = [f"{glyph} {word}" if mark.state != "ok" else "", wanted, host_text(mark.text)]
    return " · ".join(p for p in parts if p), style if mark.state != "ok" else ""


def mark_rows(marks: Sequence[FlagMark], wide: int) -> list[Row]:
    """Every flag that this build does not take as it stands, worst first."""
    shown = [m for m in marks if m.state != "ok" and m.state != "not-known"]
    shown.sort(key=_rank)
    rows: list[Row] = []
    for mark in shown:
        glyph, word, style = STATES.get(mark.state, ("?", host_text(mark.state, 20), "dim"))
        name = host_text(mark.name, max(8, wide - len(word) - 6))
        head: Row = ((f" {glyph} ", style), (f"{name}  ", ""), (word, style))
        wanted = f"-> {_wanted(mark)}" if mark.wanted else ""
        if wanted and width(head) + 1 + len(wanted) <= wide:
            rows.append((*head, (" " + wanted, "bold")))
        else:
            rows.append(head)
            rows += wrap(wanted, wide - 1, "     ", "bold") if wanted else []
        rows += wrap(host_text(mark.text), wide - 1, "     ", "dim") if mark.text else []
    unread = sum(m.state == "not-known" for m in marks)
    if unread:
        rows.append(row((f" ? {unread} flag{'s' if unread > 1 else ''} not checked against the build", "dim")))
    return rows
