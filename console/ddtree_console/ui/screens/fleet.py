"""The fleet: every service of every host, the most urgent first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.widget import Widget

from ddtree_console.ui.paint import Piece, host_text, row, wrap
from ddtree_console.ui.screens.base import ConsoleScreen
from ddtree_console.ui.widgets.bars import TitleBar
from ddtree_console.ui.widgets.filter import FilterLine
from ddtree_console.ui.widgets.pick import Pick
from ddtree_console.ui.widgets.rows import Rows

if TYPE_CHECKING:
    from ddtree_console.domain.snapshot import FleetSnapshot
    from ddtree_console.ui.views import fleet as view


class FleetScreen(ConsoleScreen):
    """Home."""

    # Its fleet.tcss is read by the app: Textual reads no CSS_PATH of a default screen.
    is_home = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter", id="filter", tooltip="show only rows with these words"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._words = ""
        self._left: dict[str, str] = {}
        self._items: list[view.Item] = []

    def body(self) -> Iterable[Widget]:
        """Table, detail, what changed, filter."""
        yield Pick(id="main")
        yield Rows(id="since", classes="-auto", focus=False)
        yield Rows(id="detail", classes="-auto", focus=False)
        yield FilterLine()

    def on_mount(self) -> None:
        """The frame's title is fixed text; what stands there before the services is in the very first frame."""
        self.query_one("#main").border_title = "/ filter"
        if self.console_app.services is None:
            self.draw_before()

    def target(self) -> str:
        """The chosen row."""
        return self.query_one("#main", Pick).key if self.is_mounted else ""

    def title_pieces(self, snapshot: FleetSnapshot, now: float) -> list[Piece]:
        """FLEET and the counts."""
        from ddtree_console.ui.views import fleet as view

        app = self.console_app
        if app.services is None:
            return []
        counts = view.summary(view.items(snapshot, app.services.fleet, now))
        problem = f" · {app.problem_text}" if app.problem_text else ""
        return [(" FLEET  ", "title"), (counts, ""), (host_text(problem), "bad")]

    def draw_before(self) -> bool:
        """The first frame needs no snapshot and none of what draws one."""
        app = self.console_app
        self.query_one(TitleBar).put(
            [(" FLEET  ", "title"), ("reading the fleet…", "dim")], app.badges(), app.time_text()
        )
        self.query_one("#main", Pick).fill([("", row(("  reading the fleet…", "dim")))])
        return True

    def draw(self, snapshot: FleetSnapshot, now: float) -> None:
        """Rows and the detail of the chosen one."""
        from ddtree_console.ui.views import fleet as view

        app, table = self.console_app, self.query_one("#main", Pick)
        if app.services is None:
            return
        self._items = view.items(snapshot, app.services.fleet, now, self._words)
        wide = table.size.width
        if wide < 36:
            table.fill([(i.service.key, view.tiny_row(i, wide)) for i in self._items])
        else:
            sizes = view.sizes(self._items, wide)
            head = ("", view.heading_row(sizes))
            empty = [("", row(("  no service matches", "dim")))] if not self._items else []
            table.fill([head, *[(i.service.key, view.item_row(i, sizes)) for i in self._items], *empty])
        self._detail(now)

    def _detail(self, now: float) -> None:
        from ddtree_console.ui.views import fleet as view

        chosen = next((i for i in self._items if i.service.key == self.target()), None)
        text, style = view.detail(chosen, now)
        pane = self.query_one("#detail", Rows)
        pane.show(wrap(text, max(18, pane.size.width - 1), " ", style) if text else [row("")])

    @on(Pick.Moved)
    def _moved(self) -> None:
        self._detail(self.console_app.now())
        self.refresh_bindings()

    @on(Pick.Chosen)
    def _chosen(self, event: Pick.Chosen) -> None:
        app = self.console_app
        if app.in_flight(event.key):
            app.open_deploy(event.key)
        else:
            app.open_host(event.key)

    def action_filter(self) -> None:
        """Opens the filter line."""
        self.query_one(FilterLine).open(self._words)

    @on(FilterLine.Filtered)
    def _filtered(self, event: FilterLine.Filtered) -> None:
        self._words = event.words
        self.query_one("#main").border_title = "/ filter" if not event.words else "/ filtered, esc shows all"
        self.redraw()

    def copy_text(self) -> str:
        """The table and the line below it."""
        return self.query_one("#main", Pick).text + "\n" + self.query_one("#detail", Rows).text

    def on_screen_suspend(self) -> None:
        """Remembers what was seen."""
        self._remember()

    def on_screen_resume(self) -> None:
        """Says what changed meanwhile."""
        super().on_screen_resume()
        self.call_after_refresh(self._since)

    def on_app_blur(self, _event: events.AppBlur) -> None:
        """The terminal lost the focus."""
        self._remember()

    def on_app_focus(self, _event: events.AppFocus) -> None:
        """And has it again."""
        self._since()

    def _remember(self) -> None:
        app = self.console_app
        if app.services is not None:
            from ddtree_console.ui.views import fleet as view

            self._left = view.words_of(view.items(app.snapshot, app.services.fleet, app.now()))

    def _since(self) -> None:
        app = self.console_app
        if app.services is None or not self.is_attached:
            return
        from ddtree_console.ui.views import fleet as view

        text = view.since(self._left, view.words_of(view.items(app.snapshot, app.services.fleet, app.now())))
        self.query_one("#since", Rows).show([row((" " + text, "work"))] if text else [])
