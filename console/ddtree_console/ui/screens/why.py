"""Why: verdict, evidence and remedy of one service."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widget import Widget

from ddtree_console.domain.snapshot import FleetSnapshot
from ddtree_console.ui.paint import Piece, row
from ddtree_console.ui.screens.base import ConsoleScreen
from ddtree_console.ui.views import fleet as fleet_view
from ddtree_console.ui.views.why import why_rows
from ddtree_console.ui.widgets.rows import Rows


class WhyScreen(ConsoleScreen):
    """`x`."""

    not_here = frozenset({"why"})

    def body(self) -> Iterable[Widget]:
        """One pane."""
        yield Rows(id="main")

    def title_pieces(self, snapshot: FleetSnapshot, now: float) -> list[Piece]:
        """WHY and the service."""
        host, _, name = self.key.partition("/")
        return [(" WHY  ", "title"), (f"{host} / {name}", "bold")]

    def draw(self, snapshot: FleetSnapshot, now: float) -> None:
        """Everything known about its state."""
        services, pane = self.console_app.services, self.query_one("#main", Rows)
        if services is None:
            return
        items = fleet_view.items(snapshot, services.fleet, now)
        item = next((i for i in items if i.service.key == self.key), None)
        wide = max(18, pane.size.width - 1)
        pane.show(why_rows(item, wide) if item is not None else [row(("  no longer in the fleet", "dim"))])

    def copy_text(self) -> str:
        """All of it."""
        return self.query_one("#main", Rows).text
