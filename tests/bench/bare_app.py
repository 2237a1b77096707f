"""The yardsticks: a bare Textual app with one DataTable of four rows, and a bare screen on `?`."""

from __future__ import annotations

from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Static


class Help(Screen[None]):
    """A title and a table of thirty rows: about what our own help shows."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.pop_screen", "back")]

    def compose(self) -> ComposeResult:
        """Title and table."""
        yield Static(" HELP")
        table: DataTable[str] = DataTable()
        yield table

    def on_mount(self) -> None:
        """Thirty rows."""
        table = self.query_one(DataTable)
        table.add_columns("KEY", "WHAT")
        for i in range(30):
            table.add_row(str(i), "something")


class Bare(App[None]):
    """One table, nothing else."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark", "bare_help", "help")]

    def compose(self) -> ComposeResult:
        """The table."""
        table: DataTable[str] = DataTable()
        yield table

    def on_mount(self) -> None:
        """Four rows."""
        table = self.query_one(DataTable)
        table.add_columns("HOST", "SERVICE", "STATE")
        for i in range(4):
            table.add_row(f"host{i}", "service", "BARE")

    def action_bare_help(self) -> None:
        """Opens the screen."""
        self.push_screen(Help())


if __name__ == "__main__":
    Bare().run()
