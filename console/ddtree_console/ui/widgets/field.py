"""One field of the launch form: its name and a one-line text; space turns choices and switches."""

from __future__ import annotations

from collections.abc import Iterable

from textual import events
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, Static

from ddtree_console.domain.engines.base import FlagHelp
from ddtree_console.ui.forms import KINDS
from ddtree_console.ui.paint import Piece, host_text


class FieldInput(Input):
    """The text of one field."""

    def __init__(self, field: FlagHelp, value: str) -> None:
        hint = {"bool": "space: on", "choice": "space: next"}.get(field.kind, "")
        super().__init__(value, placeholder=hint, select_on_focus=False)
        self.field = field

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "space" and self.field.kind in ("bool", "choice"):
            event.stop()
            event.prevent_default()
            self._turn()
            return
        if event.key in ("up", "down"):
            event.stop()
            event.prevent_default()
            _ = self.screen.focus_previous() if event.key == "up" else self.screen.focus_next()
            return
        await super()._on_key(event)

    def _turn(self) -> None:
        if self.field.kind == "bool":
            self.value = "" if self.value.strip() else "on"
            return
        at = KINDS.index(self.value) if self.value in KINDS else -1
        self.value = KINDS[(at + 1) % len(KINDS)]


class FieldRow(Horizontal):
    """Name at the left, text beside it; what the build makes of the flag is at the right, or below where it is bad."""

    DEFAULT_CSS = """
    FieldRow { height: 1; }
    FieldRow .name { width: 31; }
    FieldRow.-wrong .name { color: $error; }
    FieldRow.-changed .name { color: $primary; text-style: bold; }
    FieldRow Input { width: 1fr; min-width: 11; }
    FieldRow .mark { width: auto; max-width: 45%; padding-left: 1; color: $foreground-muted; text-wrap: nowrap;
                     text-overflow: ellipsis; }
    """

    def __init__(self, field: FlagHelp, value: str) -> None:
        super().__init__()
        self.field, self._value = field, value
        self._mark: Piece = ("", "")
        self._below: Static | None = None

    def compose(self) -> Iterable[Widget]:
        """Label, input, and room for a mark."""
        yield Static(host_text(self.field.name, 120), classes="name", markup=False)
        yield FieldInput(self.field, self._value)
        yield Static("", classes="mark", markup=False)

    def take(self, field: FlagHelp) -> None:
        """The field as it is known by now."""
        self.field = self.query_one(FieldInput).field = field

    def mark(self, piece: Piece) -> None:
        """Says what the build makes of it; the same again repaints nothing."""
        if piece == self._mark:
            return
        self._mark = piece
        text, style = piece
        bad = style in ("bad", "warn")
        self.query_one(".mark", Static).update("" if bad else text)
        if self._below is not None and not bad:
            self._below.remove()
            self._below = None
        elif self._below is not None:
            self._below.update(text)
            self._below.set_class(style == "warn", "-warn")
        elif bad and isinstance(self.parent, Widget):
            self._below = Static(text, classes="mark-below" + (" -warn" if style == "warn" else ""), markup=False)
            self.parent.mount(self._below, after=self)
