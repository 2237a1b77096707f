"""Rows of styled text, the one currency between views and widgets, and the small formats they share. Pure.

A row is a tuple of (text, style) pieces. Styles are words that the widget turns into colours of the theme:
"" dim bold good work warn bad title cursor, or two of them joined by a space.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from rich.cells import cell_len, set_cell_size

from ddtree_console.domain.text import visible

Piece = tuple[str, str]
Row = tuple[Piece, ...]

LONGEST = 4000
"""characters of one host text that are ever shown; a 1 MB line must not cost a second of key time."""


@lru_cache(maxsize=4096)
def host_text(text: str, longest: int = LONGEST) -> str:
    """Text of a host, safe to show: cut, controls made visible, secrets masked."""
    if len(text) > longest:
        more = f" +{len(text) - longest:,} characters" if longest > 200 else ""
        text = f"{text[:longest]}…{more}"
    from ddtree_console.domain.secrets import mask  # its patterns take 5 ms to compile: not before the first frame

    return visible(mask(text)) if text else ""


def row(*pieces: Piece | str) -> Row:
    """A row; a bare text has no style."""
    return tuple((p, "") if isinstance(p, str) else p for p in pieces)


def width(cells: Row) -> int:
    """Terminal cells of a row."""
    return sum(cell_len(text) for text, _ in cells)


def fit(text: str, cells: int, right: bool = False) -> str:
    """Text in exactly that many cells; what is too long ends in …; `right` aligns to the right."""
    have = cell_len(text)
    if have > cells:
        return set_cell_size(text, max(0, cells - 1)) + "…" if cells > 0 else ""
    pad = " " * (cells - have)
    return pad + text if right else text + pad


def heading(title: str, note: str, cells: int, style: str = "title", note_style: str = "dim") -> Row:
    """A panel's heading: title, a rule, and a note at the right end."""
    note = fit(note, min(cell_len(note), max(0, cells - cell_len(title) - 6)))
    rule = max(2, cells - cell_len(title) - cell_len(note) - 2 - bool(note))
    tail: Row = ((" " + note, note_style),) if note else ()
    return ((title, style), (" " + "─" * rule, "dim"), *tail)


def wrap(text: str, cells: int, indent: str = "", style: str = "") -> list[Row]:
    """Text as rows of at most that many cells, broken at blanks where possible."""
    out: list[Row] = []
    line = indent
    for word in text.split(" "):
        room = max(8, cells - cell_len(indent))
        while len(word) > 4 * room or cell_len(word) > room:
            if line.strip(" "):
                out.append(((line, style),))
            head = set_cell_size(word[: 4 * room], room)  # of a long word only its beginning is measured
            out.append(((indent + head, style),))
            word, line = word[len(head.rstrip(" ")) or 1 :], indent
        if line.strip(" ") and cell_len(line) + 1 + cell_len(word) > cells:
            out.append(((line, style),))
            line = indent + word
        else:
            line = f"{line} {word}" if line.strip(" ") else line + word
    if line.strip(" ") or not out:
        out.append(((line, style),))
    return out


def columns(sizes: Sequence[int], pieces: Iterable[Piece], right: Sequence[int] = ()) -> Row:
    """Pieces fitted to columns of those sizes, one blank between; `right`: indices of right-aligned ones."""
    out: list[Piece] = []
    for i, ((text, style), size) in enumerate(zip(pieces, sizes, strict=True)):
        if size > 0:
            out += [(fit(text, size, i in right), style), (" ", "")]
    return tuple(out)


def ago(seconds: float | None) -> str:
    """now, 5 s ago, 3 m ago: coarse, so that an idle screen is seldom repainted; '' for None."""
    if seconds is None:
        return ""
    s = max(0, int(seconds))
    if s < 5:
        return "now"
    if s < 60:
        return f"{s - s % 5} s ago"
    if s < 3600:
        return f"{s // 60} m ago"
    return f"{s // 3600} h ago" if s < 86400 else f"{s // 86400} d ago"


def clock(seconds: float | None) -> str:
    """1:48, 0:05, 1:02:10; – for None."""
    if seconds is None:
        return "–"
    s = max(0, int(seconds + 0.5))
    return f"{s // 3600}:{s // 60 % 60:02}:{s % 60:02}" if s >= 3600 else f"{s // 60}:{s % 60:02}"


def brief(seconds: float | None) -> str:
    """0.4 s, 12 s, 3:05: for steps."""
    if seconds is None:
        return ""
    return f"{seconds:.1f}s" if seconds < 10 else (f"{seconds:.0f}s" if seconds < 60 else clock(seconds))


def gib(number: int | None) -> str:
    """GiB with one decimal, without unit; – for None."""
    return "–" if number is None else f"{number / 2**30:.1f}"


def whole_gib(number: int | None) -> str:
    """Whole GiB with G; ? for None."""
    return "?" if number is None else f"{number / 2**30:.0f}G"


def bar(part: float, cells: int) -> tuple[str, str]:
    """(filled, empty) blocks of a bar; part from 0 to 1."""
    full = min(cells, max(0, round(part * cells)))
    return "█" * full, "░" * (cells - full)
