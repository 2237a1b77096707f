"""The last row of the launch form: a name typed here becomes a row of its own; the build's names complete it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from textual import on
from textual.containers import Horizontal
from textual.message import Message
from textual.suggester import SuggestFromList
from textual.widget import Widget
from textual.widgets import Input, Static

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,79}\Z")


def flag_name(text: str) -> str:
    """The dash name in what was typed; '' where it is none."""
    name = text.strip().lstrip("-").replace("_", "-")
    return name if _NAME.match(name) else ""


class AddFlag(Horizontal):
    """`add a flag`. Posts Added for a name that can be one."""

    DEFAULT_CSS = """
    AddFlag { height: 1; }
    AddFlag Static { width: 31; color: $foreground-muted; }
    AddFlag Input { width: 1fr; }
    """

    class Added(Message):
        """Enter on a name."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def compose(self) -> Iterable[Widget]:
        """Label and input."""
        yield Static("add a flag", markup=False)
        yield Input(placeholder="its name; right completes it", max_length=90)

    def offer(self, names: Sequence[str]) -> None:
        """Names that the build knows; typed with their dashes too."""
        self.query_one(Input).suggester = SuggestFromList([*names, *(f"--{n}" for n in names)]) if names else None

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()  # a name that is not finished changes nothing

    @on(Input.Submitted)
    def _done(self, event: Input.Submitted) -> None:
        event.stop()
        name = flag_name(event.value)
        if name:
            event.input.value = ""
            self.post_message(self.Added(name))
