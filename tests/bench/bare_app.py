"""The yardstick of the first frame: a bare Textual app with one DataTable of four rows."""

from __future__ import annotations

from textual.app import App, ComposeResult
from textual.widgets import DataTable


class Bare(App[None]):
    """One table, nothing else."""

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


if __name__ == "__main__":
    Bare().run()
