"""Rows with a cursor: one row chosen, by key or mouse, that stays on its item when rows move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from ddtree_console.ui.paint import Row
from ddtree_console.ui.widgets.rows import Rows


class Pick(Rows):
    """Each row has a key ('' for headings, which the cursor skips)."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "down", show=False),
        Binding("k,up", "move(-1)", "up", show=False),
        Binding("g,home", "edge(0)", "top", show=False),
        Binding("G,end", "edge(-1)", "bottom", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("enter", "choose", "open", id="open", tooltip="open the chosen row"),
    ]

    class Moved(Message):
        """The cursor is on another item."""

    class Chosen(Message):
        """Enter or a second click on an item."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, *, id: str | None = None, classes: str | None = None, opens: bool = True) -> None:
        super().__init__(id=id, classes=classes)
        self._opens = opens
        self._keys: tuple[str, ...] = ()
        self._at = -1

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enter is offered only where it opens something."""
        return self._opens if action == "choose" else super().check_action(action, parameters)

    @property
    def key(self) -> str:
        """The chosen item's key, '' when there is none."""
        return self._keys[self._at] if 0 <= self._at < len(self._keys) else ""

    def fill(self, items: Sequence[tuple[str, Row]]) -> None:
        """Takes new rows with their keys; the cursor follows its item."""
        before, old_at = self.key, self._at
        self._keys = tuple(key for key, _ in items)
        self.show([r for _, r in items])
        if before and before in self._keys:
            self._at = self._keys.index(before)
        else:
            self._at = self._near(min(max(old_at, 0), len(self._keys) - 1))
        if self._at != old_at:
            self.refresh()
            self._into_view()
        if self.key != before:
            self.post_message(self.Moved())

    def select(self, key: str) -> None:
        """Puts the cursor on that item, if it is there."""
        if key in self._keys:
            self._go(self._keys.index(key))

    def row_style(self, y: int) -> str:
        """The cursor's row."""
        return "cursor" if y == self._at and self.key else ""

    def _near(self, at: int) -> int:
        after = next((i for i in range(max(at, 0), len(self._keys)) if self._keys[i]), -1)
        return after if after >= 0 else next((i for i in range(at, -1, -1) if self._keys[i]), -1)

    def _go(self, at: int) -> None:
        if at == self._at or not 0 <= at < len(self._keys) or not self._keys[at]:
            return
        old, self._at = self._at, at
        self.refresh_line(old)
        self.refresh_line(at)
        self._into_view()
        self.post_message(self.Moved())

    def _into_view(self) -> None:
        top, tall = self.scroll_offset.y, max(1, self.size.height)
        if self._at < top:
            first = next((i for i, key in enumerate(self._keys) if key), 0)
            self.scroll_to(y=0 if self._at == first else self._at, animate=False)
        elif self._at >= top + tall:
            self.scroll_to(y=self._at - tall + 1, animate=False)

    def action_move(self, step: int) -> None:
        """One item down or up."""
        at = self._at + step
        while 0 <= at < len(self._keys) and not self._keys[at]:
            at += step
        self._go(at)

    def action_page(self, step: int) -> None:
        """A page down or up."""
        tall = max(1, self.size.height - 1)
        self._go(self._near(min(max(self._at + step * tall, 0), len(self._keys) - 1)))

    def action_edge(self, at: int) -> None:
        """First or last item."""
        self._go(self._near(0 if at == 0 else len(self._keys) - 1))

    def action_choose(self) -> None:
        """Enter."""
        if self.key:
            self.post_message(self.Chosen(self.key))

    def on_click(self, event: events.Click) -> None:
        """A click selects, a click on the selected item opens."""
        at = event.y + self.scroll_offset.y
        if at == self._at:
            self.action_choose()
        else:
            self._go(at)
