"""Checks of a host and a service: what is well, what is not, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from ddtree_console.domain.snapshot import FleetSnapshot
from ddtree_console.services.api import Check
from ddtree_console.services.errors import HostError
from ddtree_console.ui.paint import Piece, host_text, row, wrap
from ddtree_console.ui.screens.base import ConsoleScreen
from ddtree_console.ui.views.checks import check_rows, worst_first
from ddtree_console.ui.widgets.rows import Rows


class CheckScreen(ConsoleScreen):
    """`c`."""

    not_here = frozenset({"check"})
    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "reload", "again", id="reload", tooltip="check again")]

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._checks: Sequence[Check] = ()
        self._note = "checking…"
        self._note_style = "dim"

    def body(self) -> Iterable[Widget]:
        """One pane."""
        yield Rows(id="main")

    def on_mount(self) -> None:
        """Checks once."""
        self.action_reload()

    def action_reload(self) -> None:
        """Checks again."""
        self._note, self._note_style = "checking…", "dim"
        self.run_worker(self._load(), exit_on_error=False, exclusive=True)

    async def _load(self) -> None:
        host, _, service = self.key.partition("/")
        try:
            self._checks = await self.console_app.need_services().check(host, service)
            self._note = ""
        except HostError as error:
            self._note, self._note_style = str(error), "warn"
        self.redraw()

    def title_pieces(self, snapshot: FleetSnapshot, now: float) -> list[Piece]:
        """CHECK, the service and the count."""
        host, _, name = self.key.partition("/")
        bad = sum(c.state == "fail" for c in self._checks)
        count = f"   {bad} of {len(self._checks)} failed" if bad else f"   {len(self._checks)} checks, none failed"
        return [
            (" CHECK  ", "title"),
            (f"{host} / {name}", "bold"),
            (count if self._checks else "", "bad" if bad else "dim"),
        ]

    def draw(self, snapshot: FleetSnapshot, now: float) -> None:
        """Results."""
        pane = self.query_one("#main", Rows)
        wide = max(18, pane.size.width - 1)
        note = wrap(host_text(self._note), wide, " ", self._note_style) if self._note else []
        pane.show([row(""), *check_rows(worst_first(self._checks), wide, self.key.partition("/")[2]), *note])

    def copy_text(self) -> str:
        """All results."""
        return self.query_one("#main", Rows).text
