"""The first and the last line of every screen: what it is, and which keys work."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len
from textual import events, on
from textual.screen import Screen

from ddtree_console.ui.paint import Piece, Row, fit
from ddtree_console.ui.widgets.rows import Rows

KEY_NAMES = {
    "escape": "esc",
    "question_mark": "?",
    "slash": "/",
    "plus": "+",
    "colon": ":",
    "ctrl+s": "^s",
    "ctrl+r": "^r",
    "ctrl+p": "^p",
    "space": "space",
}


class TitleBar(Rows):
    """Title at the left; DEMO, READ-ONLY and the time at the right."""

    DEFAULT_CSS = "TitleBar { height: 1; overflow: hidden; scrollbar-size: 0 0; }"

    def __init__(self) -> None:
        super().__init__(id="title", focus=False)

    def put(self, title: Iterable[Piece], badges: Iterable[str], time: str) -> None:
        """New texts; badges win over the title where the line is short."""
        right: list[Piece] = []
        for badge in badges:
            right += [(f" {badge} ", "badge"), (" ", "")]
        wide = self.size.width or self.app.size.width  # the first frame is drawn before the first layout
        if wide >= 60 and time:
            right.append((time + " ", "dim"))
        room = wide - sum(cell_len(t) for t, _ in right)
        left: list[Piece] = []
        for text, style in title:
            piece = fit(text, min(cell_len(text), max(0, room)))
            room -= cell_len(piece)
            left.append((piece, style))
        self.show([(*left, (" " * max(0, room), ""), *right)])


class KeyBar(Rows):
    """The keys that work now, from the screen's bindings; greyed where they are not allowed. A click presses one."""

    DEFAULT_CSS = "KeyBar { height: 1; overflow: hidden; scrollbar-size: 0 0; }"

    def __init__(self) -> None:
        super().__init__(id="keys", focus=False)
        self._spots: list[tuple[int, int, str]] = []

    def on_mount(self) -> None:
        """Follows the screen's bindings."""
        self.screen.bindings_updated_signal.subscribe(self, self._update)

    def _update(self, _screen: Screen[object]) -> None:
        self.refresh_keys()

    @on(Rows.Widened)
    def _other_width(self) -> None:
        self.refresh_keys()

    def refresh_keys(self) -> None:
        """Builds the line again."""
        if not self.is_attached or not self.size.width:
            return
        shown = [
            (KEY_NAMES.get(b.binding.key, b.binding.key), b.binding.description, b.enabled, b.binding.key)
            for b in self.screen.active_bindings.values()
            if b.binding.show
        ]
        last = [s for s in shown if s[0] in ("?", "q")]
        out: list[Piece] = []
        self._spots = []
        at, room = 0, self.size.width - sum(len(k) + len(d) + 3 for k, d, _, _ in last)
        for key, words, enabled, raw in [s for s in shown if s not in last]:
            need = len(key) + len(words) + 3
            if at + need > room:
                continue
            at = self._put(out, at, key, words, enabled, raw)
        for key, words, enabled, raw in last:
            at = self._put(out, at, key, words, enabled, raw)
        row: Row = tuple(out)
        self.show([row])

    def _put(self, out: list[Piece], at: int, key: str, words: str, enabled: bool, raw: str) -> int:
        out += [(f" {key}", "title" if enabled else "dim"), (f" {words} ", "" if enabled else "dim")]
        end = at + len(key) + len(words) + 3
        self._spots.append((at, end, raw))
        return end

    def on_click(self, event: events.Click) -> None:
        """Presses the key under the mouse."""
        for start, end, key in self._spots:
            if start <= event.x < end:
                self.app.simulate_key(key)
