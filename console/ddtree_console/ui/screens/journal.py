"""The journal of a service on the whole screen: follow, pause, filter, gaps and dropped lines in sight."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget

from ddtree_console.domain.snapshot import FleetSnapshot
from ddtree_console.ui.paint import Piece, host_text, row
from ddtree_console.ui.screens.base import ConsoleScreen
from ddtree_console.ui.widgets.feed import JournalFeed
from ddtree_console.ui.widgets.filter import FilterLine
from ddtree_console.ui.widgets.rows import Rows


class JournalScreen(ConsoleScreen):
    """`l`."""

    not_here = frozenset({"journal"})
    CSS_PATH = "journal.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "follow", "follow", id="follow", tooltip="follow the end, or stay"),
        Binding("space", "pause", "pause", id="pause", tooltip="take no new lines for now"),
        Binding("slash", "filter", "filter", id="filter", tooltip="only lines with these words"),
        Binding("i", "invocation", "this start", id="invocation", tooltip="only lines of the unit's current start"),
        Binding("b", "probes", "probes", id="probes", tooltip="show or fold the lines that health probes leave"),
    ]

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._words = ""
        self._only = False

    def body(self) -> Iterable[Widget]:
        """Pane, note, filter."""
        yield JournalFeed(id="main")
        yield Rows(id="note", focus=False)
        yield FilterLine()

    def on_mount(self) -> None:
        """Lines of this service."""
        self.query_one(JournalFeed).watch_service(self.key)

    def title_pieces(self, snapshot: FleetSnapshot, now: float) -> list[Piece]:
        """JOURNAL and the service."""
        host, _, name = self.key.partition("/")
        return [(" JOURNAL  ", "title"), (f"{host} / {name}", "bold")]

    def draw(self, snapshot: FleetSnapshot, now: float) -> None:
        """The note line."""
        self._note()

    @on(JournalFeed.Changed)
    def _note(self) -> None:
        feed = self.query_one(JournalFeed)
        pieces: list[Piece] = [(" " + feed.note(), "warn" if feed.paused or feed.skipped else "dim")]
        if self._words:
            pieces.append((f"  / {host_text(self._words, 80)}", "work"))
        if self._only:
            pieces.append(("  this start only", "work"))
        self.query_one("#note", Rows).show([row(*pieces)])

    def action_follow(self) -> None:
        """Follow or stay."""
        feed = self.query_one(JournalFeed)
        feed.paused = False
        feed.follow(not feed.following)

    def action_pause(self) -> None:
        """Take no new lines, or take them again."""
        feed = self.query_one(JournalFeed)
        feed.paused = not feed.paused
        feed.pull()
        self._note()

    def action_invocation(self) -> None:
        """Only the current start, or all."""
        service = self.console_app.snapshot.service(self.key)
        unit = service.unit if service is not None else None
        self._only = not self._only and unit is not None and bool(unit.invocation)
        self.query_one(JournalFeed).only(invocation=unit.invocation if self._only and unit is not None else "")
        self._note()

    def action_probes(self) -> None:
        """Fold or show."""
        feed = self.query_one(JournalFeed)
        feed.unfold(not feed.unfolded)

    def action_filter(self) -> None:
        """Opens the filter line."""
        self.query_one(FilterLine).open(self._words)

    @on(FilterLine.Filtered)
    def _filtered(self, event: FilterLine.Filtered) -> None:
        self._words = event.words
        self.query_one(JournalFeed).only(words=event.words)
        self._note()

    def copy_text(self) -> str:
        """The lines in view."""
        return self.query_one(JournalFeed).text
