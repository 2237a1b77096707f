"""What a launch will hold on its fullest GPU, as a bar that moves while the operator edits, with its figures."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.reactive import reactive

from ddtree_console.domain.memory.types import Estimate, Term
from ddtree_console.ui.paint import Piece, Row, fit, host_text, row, wrap
from ddtree_console.ui.widgets.rows import Rows

# term -> name in the legend, fill, style: the fill alone tells it, colour only helps
LOOKS = {
    "weights": ("weights", "█", "work"),
    "draft": ("draft", "▓", "work"),
    "kv pool": ("kv", "▒", "good"),
    "draft kv pool": ("draft kv", "░", "good"),
    "hybrid state": ("state", "▞", "warn"),
    "graphs": ("graphs", "=", "dim"),
    "reserve": ("reserve", "-", "dim"),
    "free": ("free", "·", "dim"),
}
VERDICTS = {"fits": ("●", "good"), "tight": ("▲", "warn"), "does not fit": ("✖", "bad"), "not known": ("?", "dim")}
LEVERS = 4
"""lines of what else would make it fit."""


def gib(size: int) -> str:
    """GiB with one decimal, two below a tenth."""
    found = size / 2**30
    return f"{found:.2f}" if 0 < abs(found) < 0.095 else f"{found:.1f}"


def cells(sizes: Sequence[int], wide: int) -> list[int]:
    """Cells of each part of a bar: in proportion, `wide` in all, and one at least for what is not nothing."""
    total = sum(sizes)
    if total <= 0 or wide <= 0:
        return [0] * len(sizes)
    exact = [size * wide / total for size in sizes]
    found = [max(int(part), size > 0) for part, size in zip(exact, sizes, strict=True)]
    while sum(found) > wide:
        found[found.index(max(found))] -= 1
    while sum(found) < wide:
        short = [part - have if part else -1.0 for part, have in zip(exact, found, strict=True)]
        found[short.index(max(short))] += 1
    return found


def bar(estimate: Estimate, wide: int) -> Row:
    """The stacked bar; what does not fit on the card is drawn as ! behind the mark of its end."""
    parts = [term for term in estimate.terms if term.bytes > 0]
    needed = sum(term.bytes for term in parts)
    room = wide - 1
    inside = room if needed <= estimate.capacity else max(1, min(room - 1, round(room * estimate.capacity / needed)))
    pieces: list[Piece] = []
    at = 0
    for term, count in zip(parts, cells([term.bytes for term in parts], room), strict=True):
        _, fill, style = LOOKS.get(term.name, (term.name, "?", ""))
        fits = max(0, min(count, inside - at))
        pieces += [(fill * fits, style)] if fits else []
        at += count
    pieces += [("▏", "bold"), ("!" * (room - inside), "bad")]
    return tuple(piece for piece in pieces if piece[0])


def _wrapped(items: Sequence[Row], wide: int, gap: str = "  ") -> list[Row]:
    """Items side by side, broken between them."""
    out: list[Row] = []
    line: list[Piece] = []
    used = 0
    for item in items:
        size = sum(cell_len(text) for text, _ in item)
        if line and used + len(gap) + size > wide:
            out.append(tuple(line))
            line, used = [], 0
        if line:
            line.append((gap, ""))
            used += len(gap)
        line += item
        used += size
    return [*out, tuple(line)] if line else out


def _legend(terms: Sequence[Term], binding: str) -> list[Row]:
    found: list[Row] = []
    for term in terms:
        name, fill, style = LOOKS.get(term.name, (term.name, "?", ""))
        words = "bold" if term.name == binding else ""
        if term.name == "free" and term.bytes < 0:
            found.append(row(("! ", "bad"), (f"too much {gib(-term.bytes)}", "bad")))
        else:
            found.append(row((f"{fill} ", style), (f"{name} {gib(term.bytes)}", words)))
    return found


def _figures(estimate: Estimate) -> list[Row]:
    """Pool, requests, fraction."""
    found: list[Row] = []
    if estimate.tokens is not None:
        found.append(row((f"{estimate.tokens:,} tokens", "bold")))
    if estimate.bytes_per_token:
        found.append(row(f"{estimate.bytes_per_token / 1024:.1f} KiB each"))
    if estimate.requests is not None:
        found.append(row(f"{estimate.requests:,} running request{'' if estimate.requests == 1 else 's'}"))
    if estimate.least is not None and estimate.greatest is not None:
        found.append(row(f"mem-fraction {estimate.least:.3f} to {estimate.greatest:.3f}"))
    elif estimate.terms:
        found.append(row(("no mem-fraction works", "bad")))
    return found


def rows(estimate: Estimate | None, wide: int) -> list[Row]:
    """The whole picture in rows of at most `wide` cells; the first two say the verdict and show the bar."""
    wide = max(30, wide)
    if estimate is None:
        return [row((fit("MEMORY  no estimate for this engine", wide), "dim"))]
    glyph, style = VERDICTS.get(estimate.verdict, ("?", "dim"))
    said = f"{glyph} {estimate.verdict}" + (f": {estimate.binding}" if estimate.binding else "")
    right = f"{gib(estimate.capacity)} GiB a GPU" if estimate.capacity else ""
    room = wide - cell_len("MEMORY  ")
    left = fit(said, min(cell_len(said), room))
    gap = room - cell_len(left) - cell_len(right)
    head: list[Piece] = [("MEMORY  ", "title"), (left, style)]
    if right and gap >= 2:
        head += [(" " * gap, ""), (right, "dim")]
    out: list[Row] = [tuple(head)]
    if estimate.terms:
        out.append(bar(estimate, wide))
        out += _wrapped(_legend(estimate.terms, estimate.binding), wide)
        out += _wrapped(_figures(estimate), wide, " · ")
    for text in estimate.levers[:LEVERS]:
        out += wrap("→ " + host_text(text), wide, "", "warn" if estimate.verdict != "fits" else "")
    for text in (*estimate.problems, *((estimate.learnt,) if estimate.learnt else ())):
        out += wrap(host_text(text), wide, "", "dim")
    return out


class MemoryBar(Rows):
    """Shows an estimate; None says that there is none."""

    estimate: reactive[Estimate | None] = reactive(None)

    def __init__(self, *, id: str | None = None, classes: str = "") -> None:
        super().__init__(id=id, classes=f"-auto {classes}".strip(), focus=False)

    def watch_estimate(self) -> None:
        """Draws it."""
        self._draw()

    def on_resize(self) -> None:
        """Draws it anew for another width."""
        super().on_resize()
        self._draw()

    def _draw(self) -> None:
        if self.size.width:
            # auto height takes one column for a scrollbar that may come
            self.show(rows(self.estimate, self.size.width - 1))
