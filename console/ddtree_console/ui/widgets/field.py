"""One field of the launch form: its name and a one-line text; space turns choices and switches."""

from __future__ import annotations

from collections.abc import Iterable

from textual import events
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, Static

from ddtree_console.domain.engines.base import FlagHelp
from ddtree_console.ui.forms import KINDS


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
    """Name at the left, text at the right."""

    DEFAULT_CSS = """
    FieldRow { height: 1; }
    FieldRow Static { width: 31; }
    FieldRow.-wrong Static { color: $error; }
    FieldRow.-changed Static { color: $primary; text-style: bold; }
    FieldRow Input { width: 1fr; }
    """

    def __init__(self, field: FlagHelp, value: str) -> None:
        super().__init__()
        self.field, self._value = field, value

    def compose(self) -> Iterable[Widget]:
        """Label and input."""
        yield Static(self.field.name, markup=False)
        yield FieldInput(self.field, self._value)
