"""A one-line filter that appears on `/`, narrows while one types, and goes away with esc or enter."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input


class FilterLine(Input):
    """Hidden until opened. Enter keeps the filter, esc drops it."""

    DEFAULT_CSS = "FilterLine { display: none; } FilterLine.-open { display: block; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "drop", "show all", show=False)]

    class Filtered(Message):
        """The words changed."""

        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    def __init__(self) -> None:
        super().__init__(id="filter", placeholder="filter: words that must all occur; enter keeps, esc shows all")

    def open(self, words: str) -> None:
        """Shows the line and takes the focus."""
        self.value = words
        self.add_class("-open")
        self.focus()

    def _close(self) -> None:
        self.remove_class("-open")
        self.screen.query_one("#main").focus()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        if self.has_class("-open"):
            self.post_message(self.Filtered(self.value))

    @on(Input.Submitted)
    def _done(self, event: Input.Submitted) -> None:
        event.stop()
        self._close()

    def action_drop(self) -> None:
        """Esc: everything again."""
        self.value = ""
        self._close()
        self.post_message(self.Filtered(""))
