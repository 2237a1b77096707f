"""What every screen shares: title, keys, and being drawn from one snapshot at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget

from ddtree_console.ui.paint import Piece
from ddtree_console.ui.screens.base_keys import CHANGES_A_HOST
from ddtree_console.ui.widgets.bars import KeyBar, TitleBar
from ddtree_console.ui.widgets.rows import Rows

if TYPE_CHECKING:
    from ddtree_console.domain.snapshot import FleetSnapshot
    from ddtree_console.ui.app import ConsoleApp


class ConsoleScreen(Screen[None]):
    """A full screen about the fleet, a host or a service."""

    not_here: ClassVar[frozenset[str]] = frozenset()
    """actions of the app that make no sense on this screen"""
    AUTO_FOCUS: ClassVar[str | None] = "#main"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "app.focus_next", "pane", show=False),
        Binding("shift+tab", "app.focus_previous", "pane back", show=False),
    ]

    def __init__(self, key: str = "") -> None:
        super().__init__()
        self.key = key
        self._draw_due = False
        self._offered: tuple[str, bool, bool] | None = None

    @property
    def console_app(self) -> ConsoleApp:
        """The app, typed."""
        return cast("ConsoleApp", self.app)

    def compose(self) -> ComposeResult:
        """Title, body, keys."""
        yield TitleBar()
        yield from self.body()
        yield KeyBar()

    def body(self) -> Iterable[Widget]:
        """The widgets between title and keys."""
        raise NotImplementedError  # each screen brings its own; Textual's metaclass leaves no room for ABC

    def target(self) -> str:
        """HOST/SERVICE that keys act on, '' for none."""
        return self.key

    def title_pieces(self, snapshot: FleetSnapshot, now: float) -> list[Piece]:
        """The title."""
        raise NotImplementedError  # each screen brings its own; Textual's metaclass leaves no room for ABC

    def draw(self, snapshot: FleetSnapshot, now: float) -> None:
        """Puts a snapshot on the screen; only what changed is repainted."""
        raise NotImplementedError  # each screen brings its own; Textual's metaclass leaves no room for ABC

    def draw_before(self) -> bool:
        """Draws what there is before the services: the first frame. False where that is the same as always."""
        return False

    def copy_text(self) -> str:
        """What `y` copies."""
        return ""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Greyed where --read-only forbids it."""
        if action in CHANGES_A_HOST and self.console_app.read_only:
            return None
        return super().check_action(action, parameters)

    def redraw(self) -> None:
        """Draws the app's current snapshot."""
        app = self.console_app
        if not self.is_mounted or not self.is_attached or not self.query(TitleBar):
            return  # a tick may come between a screen and its widgets
        if app.services is None and self.draw_before():
            return
        target = self.target()
        offered = (target, app.in_flight(target), app.finding(target) is not None)
        if offered != self._offered:  # keys come and go with what is known of the chosen service
            self._offered = offered
            self.refresh_bindings()
        now = app.now()
        self.query_one(TitleBar).put(self.title_pieces(app.snapshot, now), app.badges(), app.time_text())
        self.draw(app.snapshot, now)

    def on_mount(self) -> None:
        """The title is in the first paint; the body follows its first layout."""
        app = self.console_app
        if app.services is not None:
            self.query_one(TitleBar).put(self.title_pieces(app.snapshot, app.now()), app.badges(), app.time_text())

    def on_screen_resume(self) -> None:
        """On top again: draw, since suspended screens are not drawn."""
        self.call_next(self.redraw)

    @on(Rows.Widened)
    def _other_width(self) -> None:
        # Several panes change at once; drawing at the next turn, not after a frame, saves a key 20 to 40 ms.
        if not self._draw_due:
            self._draw_due = True
            self.call_next(self._draw_now)

    def _draw_now(self) -> None:
        self._draw_due = False
        self.redraw()
