"""No fleet yet: the way in, with the exact commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.widget import Widget

from ddtree_console.domain.snapshot import FleetSnapshot
from ddtree_console.ui.paint import Piece, Row, host_text, row, wrap
from ddtree_console.ui.screens.base import ConsoleScreen
from ddtree_console.ui.widgets.rows import Rows

ADOPT = "ddtree-console adopt HOST UNIT"
DEMO = "ddtree-console demo"


class EmptyScreen(ConsoleScreen):
    """Shown instead of an empty table."""

    not_here = frozenset({"deploy", "rollback", "edit", "why", "journal", "history", "check", "zoom"})
    is_home = True

    def __init__(self, searched: Sequence[str] = ()) -> None:
        super().__init__()
        self._searched = searched

    def body(self) -> Iterable[Widget]:
        """One pane."""
        yield Rows(id="main")

    def title_pieces(self, snapshot: FleetSnapshot, now: float) -> list[Piece]:
        """NO FLEET."""
        return [(" NO FLEET YET", "title")]

    def draw(self, snapshot: FleetSnapshot, now: float) -> None:
        """Two commands and where was searched."""
        pane = self.query_one("#main", Rows)
        wide = max(18, pane.size.width - 2)
        rows: list[Row] = [row("")]
        rows += wrap("Take over a service that runs already:", wide, "  ")
        rows += [row(("    " + ADOPT, "bold"))]
        rows += wrap("or look around first, without any host or GPU:", wide, "  ")
        rows += [row(("    " + DEMO, "bold")), row("")]
        if self._searched:
            rows += wrap("A fleet file was searched for in:", wide, "  ", "dim")
            rows += [row(("    " + host_text(path, 300), "dim")) for path in self._searched]
        rows += wrap("Another place: ddtree-console --fleet FILE", wide, "  ", "dim")
        pane.show(rows)

    def copy_text(self) -> str:
        """The adopt command."""
        return ADOPT
