"""The name of a new profile that extends the edited one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input

from ddtree_console.ui.forms import profile_name_error
from ddtree_console.ui.paint import row
from ddtree_console.ui.widgets.rows import Rows


class SaveScreen(ModalScreen[str | None]):
    """Returns the name, or None."""

    CSS_PATH = "modal.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "cancel")]

    def __init__(self, base: str, taken: Sequence[str]) -> None:
        super().__init__()
        self._base, self._taken = base, taken

    def compose(self) -> Iterable[Widget]:
        """Question and field."""
        yield Rows(id="box", classes="-auto", focus=False)
        yield Input(self._free(), id="name")

    def _free(self) -> str:
        return next(n for i in range(2, 1000) if (n := f"{self._base}-{i}") not in self._taken)

    def on_mount(self) -> None:
        """The field has the focus."""
        self._say(self._free())
        self.query_one(Input).focus()

    def _say(self, name: str) -> None:
        wrong = profile_name_error(name, self._taken)
        note = (f"✖ {wrong}", "bad") if wrong else ("enter saves, esc does not", "dim")
        self.query_one(Rows).show([row(("Save as a profile that extends ", ""), (self._base, "bold")), row(note)])

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._say(event.value)

    @on(Input.Submitted)
    def _done(self, event: Input.Submitted) -> None:
        if not profile_name_error(event.value, self._taken):
            self.dismiss(event.value)

    def action_cancel(self) -> None:
        """Nothing is written."""
        self.dismiss(None)
