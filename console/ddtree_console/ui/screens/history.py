"""Attempts of a service, from the host itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget

from ddtree_console.domain.snapshot import FleetSnapshot
from ddtree_console.services.api import HistoryEntry
from ddtree_console.services.errors import HostError
from ddtree_console.ui.paint import Piece, Row, host_text, row, wrap
from ddtree_console.ui.screens.base import ConsoleScreen
from ddtree_console.ui.views import history as view
from ddtree_console.ui.widgets.pick import Pick
from ddtree_console.ui.widgets.rows import Rows


class HistoryScreen(ConsoleScreen):
    """`h`."""

    not_here = frozenset({"history"})
    CSS_PATH = "history.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "reload", "reload", id="reload", tooltip="ask the host again")
    ]

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._entries: Sequence[HistoryEntry] = ()
        self._note = "asking the host…"
        self._note_style = "dim"

    def body(self) -> Iterable[Widget]:
        """List and detail."""
        yield Pick(id="main", opens=False)
        yield Rows(id="entry")

    def on_mount(self) -> None:
        """Asks once."""
        self.action_reload()

    def action_reload(self) -> None:
        """Asks the host again."""
        self.run_worker(self._load(), exit_on_error=False, exclusive=True)

    async def _load(self) -> None:
        try:
            self._entries = await self.console_app.need_services().history(self.key)
            self._note = ""
        except HostError as error:
            self._note, self._note_style = str(error), "warn"
        self.redraw()

    def title_pieces(self, snapshot: FleetSnapshot, now: float) -> list[Piece]:
        """HISTORY and the service."""
        host, _, name = self.key.partition("/")
        kept = snapshot.service(self.key)
        committed = (
            f"   committed {host_text(kept.release.committed, 40)}"
            if kept is not None and kept.release.committed
            else ""
        )
        return [(" HISTORY  ", "title"), (f"{host} / {name}", "bold"), (committed, "dim")]

    def draw(self, snapshot: FleetSnapshot, now: float) -> None:
        """Rows, or why there are none."""
        table = self.query_one("#main", Pick)
        if self._note:
            table.fill([("", r) for r in self._note_rows(table.size.width)])
        else:
            table.fill(view.items(self._entries, table.size.width))
        self._entry()

    def _note_rows(self, wide: int) -> list[Row]:
        return wrap(host_text(self._note), max(18, wide - 2), " ", self._note_style) or [row("")]

    @on(Pick.Moved)
    def _entry(self) -> None:
        pane, tx = self.query_one("#entry", Rows), self.query_one("#main", Pick).key
        entry = next((e for e in self._entries if e.tx == tx), None)
        pane.show(view.detail_rows(entry, max(18, pane.size.width - 1)))

    def copy_text(self) -> str:
        """The list and the chosen attempt."""
        return self.query_one("#main", Pick).text + "\n\n" + self.query_one("#entry", Rows).text
