"""Going back: three seconds in sight, with host, service, target and what will be lost. Esc cancels, R acts at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widget import Widget

from ddtree_console.services.api import RollbackPreview
from ddtree_console.services.errors import HostError
from ddtree_console.ui.paint import Row, fit, host_text, row, wrap
from ddtree_console.ui.widgets.rows import Rows

if TYPE_CHECKING:
    from ddtree_console.ui.app import ConsoleApp

HELD_KEY = 0.25
"""seconds after opening in which another R is the same key still held down."""
LOCKED = 6


class CountdownScreen(ModalScreen[str | None]):
    """Returns the service's key once the host has accepted, else None."""

    CSS_PATH = "modal.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "cancel", "cancel"),
        Binding("R,P,ctrl+r", "act_now", "act at once"),
        Binding("T", "take_over", "take over"),
    ]

    def __init__(self, key: str, to: str, seconds: float) -> None:
        super().__init__()
        self.key, self.to, self._seconds = key, to, seconds
        self._preview: RollbackPreview | None = None
        self._state = "counting"
        self._error = ""
        self._locked = False
        self._ends = 0.0
        self._opened = 0.0
        self._timer: Timer | None = None

    @property
    def _app(self) -> ConsoleApp:
        return cast("ConsoleApp", self.app)

    def compose(self) -> Iterable[Widget]:
        """One box."""
        yield Rows(id="box", classes="-auto")

    def on_mount(self) -> None:
        """The countdown begins; what the host would do is asked beside it, and never waited for."""
        self._opened = self._app.ticks()
        self._ends = self._opened + self._seconds
        self._timer = self.set_interval(0.05, self._step)
        self.run_worker(self._ask(), exit_on_error=False)
        self._fill()

    @on(Rows.Widened)
    def _other_width(self) -> None:
        self._fill()

    async def _ask(self) -> None:
        try:
            self._preview = await self._app.need_services().preview_rollback(self.key, self.to)
        except HostError:
            return  # going back is tried all the same: the host decides
        if self._preview.refusal and self._state == "counting":
            self._stop(f"refused: {self._preview.refusal}")
        self._fill()

    def _step(self) -> None:
        if self._state == "counting" and self._app.ticks() >= self._ends:
            self._act(False)
        self._fill()

    def _stop(self, error: str) -> None:
        self._state, self._error = "stopped", error

    def action_cancel(self) -> None:
        """Nothing happens; once the host was asked, it goes on there."""
        if self._state != "acting":
            self.dismiss(None)

    def action_act_now(self) -> None:
        """The second press."""
        if self._state == "counting" and self._app.ticks() - self._opened >= min(HELD_KEY, self._seconds):
            self._act(False)

    def action_take_over(self) -> None:
        """Ends the other transaction and goes back."""
        if self._state == "stopped" and self._locked:
            self._act(True)

    def _act(self, takeover: bool) -> None:
        self._state = "acting"
        self._fill()
        self.run_worker(self._send(takeover), exit_on_error=False)

    async def _send(self, takeover: bool) -> None:
        try:
            await self._app.need_services().rollback(self.key, self.to, takeover=takeover)
        except HostError as error:
            self._locked = error.code == LOCKED
            self._stop(str(error))
            self._fill()
            return
        self.dismiss(self.key)

    def _target(self) -> tuple[str, str]:
        service = self._app.snapshot.service(self.key)
        release = service.release if service is not None else None
        known = self._preview.target if self._preview is not None else ""
        if not known and release is not None:
            known = release.way_back if self.to == "way-back" else (release.previous or release.known_good)
        running = self._preview.running_requests if self._preview is not None else None
        if running is None and service is not None:
            running = service.http.running
        lost = "unknown" if running is None else (f"{running}, will be lost" if running else "none running")
        return known or "asking the host…", lost

    def _rows(self, wide: int) -> list[Row]:
        host, _, name = self.key.partition("/")
        kind = {"way-back": "way back", "known-good": "previous known good"}.get(self.to, self.to)
        target, lost = self._target()
        rows: list[Row] = [row(("ROLL BACK  ", "warn bold"), (f"{host} / {name}", "bold"))]
        rows += wrap(f"target    {kind}: {host_text(target, 120)}", wide)
        rows += wrap(f"requests  {lost}", wide, "", "" if lost in ("unknown", "none running") else "warn")
        if self._app.in_flight(self.key):
            rows += wrap("a deployment runs: it is asked to go back; it stays the only writer", wide, "", "dim")
        left = max(1, int(self._ends - self._app.ticks() + 0.999))
        if wide < 40 and self._state == "counting":
            return [
                row((fit(f"↻ {self.key}", wide), "warn bold")),
                row(fit(f"-> {host_text(target, 120)}", wide)),
                row(fit("requests " + lost.replace(", will be", ""), wide)),
                row(("in ", ""), (f"{left} s", "warn bold"), "  R acts now"),
                row(("esc cancels", "dim")),
            ]
        if self._state == "counting":
            rows.append(row(("in ", ""), (f"{left} s", "warn bold"), ("   esc cancels · R acts at once", "dim")))
        elif self._state == "acting":
            rows.append(row((f"asking {host}…", "work")))
        else:
            rows += wrap("✖ " + host_text(self._error), wide, "", "bad")
            rows.append(
                row(("T", "title"), " takes over   ", ("esc", "title"), " closes")
                if self._locked
                else row(("esc", "title"), " closes")
            )
        return rows

    def _fill(self) -> None:
        if self.is_attached and self.is_mounted:
            box = self.query_one(Rows)
            box.show(self._rows(max(16, box.size.width)))
