"""A journal pane: pulls whole batches at a few hertz, keeps a bounded number of lines, cleans only what is in view."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from ddtree_console.domain.text import last_bar
from ddtree_console.services.api import JournalLine
from ddtree_console.ui.paint import LONGEST, host_text
from ddtree_console.ui.widgets.rows import Rows

KEEP = 10_000
"""lines kept in a pane; older ones stay in the host's journal."""

SHORTEST = 12
"""characters from which a text is decisive enough to be looked for in a journal."""

Shown = tuple[str, str, str]
"""time, text, style of one line."""


def severity(line: JournalLine) -> str:
    """A style word: from the priority, else from the words of the line (SGLang logs everything at one priority)."""
    if line.gap:
        return "warn"
    head = line.text[:400]
    if line.priority <= 3 or "Traceback" in head or "Error" in head or "ERROR" in head:
        return "bad"
    return "warn" if line.priority == 4 or "WARN" in head or "Warning" in head else ""


def _plain_text(text: str) -> str:
    return " ".join(last_bar(text[:LONGEST]).split())


def _is_one_of(line: str, wanted: Sequence[str]) -> bool:
    """Whether a line holds one of the texts, or is a piece of one."""
    return any(w in line or (len(line) >= SHORTEST and line in w) for w in wanted)


class JournalPane(Rows):
    """Shows journal lines; follows the end until paused or scrolled up. Marked lines stand out."""

    DEFAULT_CSS = "JournalPane { overflow-x: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "walk(1)", "down", show=False),
        Binding("k,up", "walk(-1)", "up", show=False),
        Binding("pagedown", "leaf(1)", "page down", show=False),
        Binding("pageup", "leaf(-1)", "page up", show=False),
        Binding("g,home", "first", "top", show=False),
        Binding("G,end", "last", "bottom", show=False),
    ]

    class Changed(Message):
        """Lines, filter, following or dropped count changed."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._all: deque[JournalLine] = deque(maxlen=KEEP)
        self._view: list[JournalLine] = []
        self._words = ""
        self._invocation = ""
        self._marks: tuple[int, ...] = ()
        self._at_mark = -1
        self.is_probe: Callable[[str], bool] = lambda text: False
        """whether a line is the trace of a health probe: folded, unless `unfolded`"""
        self.unfolded = False
        self.folded = 0
        self.after = -1
        self.following = True
        self.skipped = 0
        self.unseen = 0

    @property
    def count(self) -> int:
        """Lines that pass the filter."""
        return len(self._view)

    @property
    def text(self) -> str:
        """The lines in view, for copying."""
        top = self.scroll_offset.y
        return "\n".join(self._plain(x) for x in self._view[top : top + max(1, self.size.height)])

    def feed(self, lines: Sequence[JournalLine]) -> None:
        """Takes a batch (seq > after). What the sequence numbers say is missing is counted, never silent."""
        if not lines:
            return
        missing = lines[0].seq - self.after - 1 if self.after >= 0 else 0
        if missing > 0:
            self.skipped += missing
            gap = JournalLine(lines[0].seq - 1, lines[0].when, lines[0].unit, "", gap=f"+{missing:,} lines not shown")
            self._take([gap])
        self.after = lines[-1].seq
        self._take(lines)
        if self.following:
            self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True)
        else:
            self.unseen += len(lines)
        self.refresh()
        self.post_message(self.Changed())

    def _take(self, lines: Sequence[JournalLine]) -> None:
        over = len(self._all) + len(lines) - KEEP
        self._all.extend(lines)
        fresh = [x for x in lines if self._passes(x)]
        if over > 0 and self._view:
            oldest = self._all[0].seq
            gone = next((i for i, x in enumerate(self._view) if x.seq >= oldest), len(self._view))
            del self._view[:gone]
            if not self.following and gone:
                self.scroll_to(y=max(0, self.scroll_offset.y - gone), animate=False, immediate=True)
        self._view.extend(fresh)
        self.virtual_size = Size(0, len(self._view))

    def _passes(self, line: JournalLine) -> bool:
        if line.gap:
            return True
        if not self.unfolded and self.is_probe(line.text):
            self.folded += 1
            return False
        if self._invocation and line.invocation and line.invocation != self._invocation:
            return False
        if not self._words:
            return True
        text = line.text[:LONGEST].lower()
        return all(word in text for word in self._words.split())

    def only(self, *, words: str | None = None, invocation: str | None = None) -> None:
        """Filters by words (all must occur) and by one start of the unit; None leaves that part as it is."""
        new = (
            self._words if words is None else words.lower(),
            invocation or (self._invocation if invocation is None else ""),
        )
        if new == (self._words, self._invocation):
            return
        self._words, self._invocation = new
        self._filter()

    def unfold(self, on: bool) -> None:
        """Shows the probes' lines, or folds them."""
        self.unfolded = on
        self._filter()

    def _filter(self) -> None:
        self.folded = 0
        self._view = [x for x in self._all if self._passes(x)]
        self.virtual_size = Size(0, len(self._view))
        self.follow(self.following)

    def reset(self) -> None:
        """Empty again, for another service."""
        self._all.clear()
        self._view, self.after, self.skipped, self.unseen, self.folded = [], -1, 0, 0, 0
        self.virtual_size = Size(0, 0)
        self.refresh()

    def follow(self, on: bool) -> None:
        """Follows the end, or stays."""
        self.following = on
        if on:
            self.unseen = 0
            self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True)
        self.refresh()
        self.post_message(self.Changed())

    @property
    def marks(self) -> tuple[int, ...]:
        """Rows of the lines that are highlighted."""
        return self._marks

    def mark(self, texts: Sequence[str]) -> None:
        """Highlights the lines with these texts, each a whole line or a part of one; blanks do not matter."""
        wanted = [w for t in texts for line in t[:LONGEST].splitlines() if len(w := _plain_text(line)) >= SHORTEST]
        self._marks = tuple(
            i for i, x in enumerate(self._view) if not x.gap and _is_one_of(_plain_text(x.text), wanted)
        )
        self._at_mark = -1
        self.refresh()
        self.post_message(self.Changed())

    def show_mark(self, *, first: bool = False) -> None:
        """Scrolls to the first highlighted line, or to the next one after the last shown."""
        if not self._marks:
            return
        self._at_mark = 0 if first else (self._at_mark + 1) % len(self._marks)
        self.following = False
        top = max(0, self._marks[self._at_mark] - max(1, self.size.height // 2))
        self.call_after_refresh(self.scroll_to, y=top, animate=False, immediate=True)
        self.post_message(self.Changed())

    def on_resize(self) -> None:
        """Another height: the end stays in view."""
        if self.following:
            self.call_after_refresh(self.scroll_to, y=self.max_scroll_y, animate=False)

    def action_walk(self, step: int) -> None:
        """One line; going up stops following."""
        self._move(step)

    def action_leaf(self, step: int) -> None:
        """One page."""
        self._move(step * max(1, self.size.height - 1))

    def _move(self, by: int) -> None:
        target = max(0, min(self.max_scroll_y, self.scroll_offset.y + by))
        self.scroll_to(y=target, animate=False, immediate=True)
        if by < 0 and self.following and self.max_scroll_y > 0:
            self.follow(False)
        elif by > 0 and not self.following and target >= self.max_scroll_y:
            self.follow(True)

    def action_first(self) -> None:
        """The oldest line kept."""
        self.follow(False)
        self.scroll_to(y=0, animate=False, immediate=True)

    def action_last(self) -> None:
        """The end; follows again."""
        self.follow(True)

    def _plain(self, line: JournalLine) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(line.when)) if line.when else "        "
        return f"{at} {line.gap and '··· ' + host_text(line.gap)}{host_text(last_bar(line.text))}"

    def render_line(self, y: int) -> Strip:
        """One line, cleaned only now."""
        at, wide = y + self.scroll_offset.y, self.size.width
        if at >= len(self._view):
            return Strip.blank(wide, self.style_of(""))
        line = self._view[at]
        plain = self._plain(line)
        when, rest = plain[:9], plain[9:]
        body = Segment(rest, self.style_of("evidence" if at in self._marks else severity(line)))
        strip = Strip([Segment(when, self.style_of("dim")), body], cell_len(plain))
        return strip.adjust_cell_length(wide, self.style_of(""))
