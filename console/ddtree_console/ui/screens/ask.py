"""One question with one key that says yes; every other key says no."""

from __future__ import annotations

from collections.abc import Iterable

from textual import events, on
from textual.screen import ModalScreen
from textual.widget import Widget

from ddtree_console.ui.paint import host_text, row, wrap
from ddtree_console.ui.widgets.rows import Rows


class AskScreen(ModalScreen[bool]):
    """Returns True for the key."""

    CSS_PATH = "modal.tcss"

    def __init__(self, text: str, key: str, word: str) -> None:
        super().__init__()
        self._text, self._key, self._word = text, key, word

    def compose(self) -> Iterable[Widget]:
        """The question."""
        yield Rows(id="box", classes="-auto")

    def on_mount(self) -> None:
        """Fills the box."""
        self._fill()

    @on(Rows.Widened)
    def _other_width(self) -> None:
        self._fill()

    def _fill(self) -> None:
        box = self.query_one(Rows)
        wide = max(16, box.size.width)
        rows = wrap(host_text(self._text), wide)
        box.show([*rows, row(""), row((self._key, "title"), f" {self._word}   ", ("esc", "title"), " no")])

    def on_key(self, event: events.Key) -> None:
        """Yes or no."""
        event.stop()
        self.dismiss(event.character == self._key)
