"""The application: first frame at once, the services afterwards, then one snapshot at a time to the screen on top."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, ClassVar

from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.screen import Screen

from ddtree_console.services.errors import NoFleet
from ddtree_console.ui.actions import OperatorActions
from ddtree_console.ui.screens.base import ConsoleScreen
from ddtree_console.ui.screens.base_keys import CHANGES_A_HOST, GLOBAL_KEYS, NEED_TARGET
from ddtree_console.ui.screens.fleet import FleetScreen
from ddtree_console.ui.theme import DARK, LIGHT

if TYPE_CHECKING:
    from ddtree_console.domain.snapshot import FleetSnapshot
    from ddtree_console.services.api import Console

FRAME = 0.25
"""seconds between two snapshots on the screen at most."""
WIDTHS = [(0, "-tiny"), (40, "-narrow"), (100, "-normal"), (140, "-wide")]
HEIGHTS = [(0, "-short"), (10, "-low"), (20, "-tall")]
AGE = 5
"""ticks (of a second) between two looks at ages while nothing is under way."""


class ConsoleApp(OperatorActions, App[str]):
    """`load` builds the services (it imports the heavy libraries): called once, in a thread, after the first frame.

    run() returns a text to print where the app could not go on (a bad fleet file: return_code 2), else None.
    countdown: seconds before a rollback acts. copies: folder for the copy file.
    """

    TITLE = "ddtree-console"
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS: ClassVar[list[BindingType]] = GLOBAL_KEYS
    CSS_PATH: ClassVar[list[str | PurePath]] = ["app.tcss", "screens/fleet.tcss"]

    def __init__(
        self,
        load: Callable[[], Console],
        *,
        demo: bool = False,
        read_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        countdown: float = 3.0,
        copies: Path | None = None,
    ) -> None:
        super().__init__()
        self.services: Console | None = None
        self.demo, self.read_only = demo, read_only
        self._snapshot: FleetSnapshot | None = None
        self.countdown_s = countdown
        self.copies = copies
        self.wall = wall
        self.problem_text = ""
        self._load, self._clock = load, clock
        self._received = clock()
        self._ticks = 0
        self._moments: dict[str, tuple[int, float]] = {}
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = DARK.name

    def get_default_screen(self) -> Screen[None]:
        """The fleet."""
        return FleetScreen()

    def on_ready(self) -> None:
        """The first frame is out: load the services, start the clock."""
        self.set_interval(1.0, self._tick)
        self.run_worker(self._start(), exit_on_error=False, group="services", name="start")

    async def _start(self) -> None:
        try:
            console = await asyncio.to_thread(self._load)
        except NoFleet as error:
            self.show_no_fleet(error)
            return
        except Exception as error:
            # Whatever the loader met, the screen is given back and the caller prints it.
            problems = getattr(error, "problems", None)
            text = "\n".join(str(p) for p in problems) if problems else str(error) or type(error).__name__
            self.exit(text, return_code=2)
            return
        # What was imported stays for good: without this each full collection would walk it, 60 ms without a key.
        gc.collect()
        gc.freeze()
        self.services = console
        self.read_only = self.read_only or console.read_only
        self.demo = self.demo or console.fleet.demo
        self.run_worker(self._serve(console), exit_on_error=False, group="services", name="monitor")
        self.run_worker(self._pump(console), exit_on_error=False, group="services", name="pump")
        if not console.fleet.hosts:
            self.show_no_fleet(None)
        for warning in console.fleet.warnings:
            self.tell(warning, "warning")

    async def _serve(self, console: Console) -> None:
        try:
            await console.run()
        except Exception as error:
            self.problem_text = f"the monitor stopped: {error or type(error).__name__}"
            self.tell(self.problem_text, "error")

    async def _pump(self, console: Console) -> None:
        self.take(console.snapshot())
        while True:
            self.take(await console.changed(self.snapshot.serial))
            await asyncio.sleep(FRAME)

    @property
    def snapshot(self) -> FleetSnapshot:
        """The newest; an empty one before the first."""
        if self._snapshot is None:
            from ddtree_console.domain.snapshot import FleetSnapshot  # 10 ms that the first frame need not wait for

            self._snapshot = FleetSnapshot()
        return self._snapshot

    def take(self, snapshot: FleetSnapshot) -> None:
        """A new snapshot for the screen on top."""
        self._snapshot, self._received = snapshot, self._clock()
        for host in snapshot.hosts:
            for service in host.services:
                tx = service.tx
                if tx is not None and self._moments.get(service.key, (-1, 0.0))[0] != tx.events:
                    self._moments[service.key] = (tx.events, self._received)
        self.draw_top()

    def draw_top(self) -> None:
        """Draws the screen on top, if it is one of ours."""
        if isinstance(self.screen, ConsoleScreen):
            self.screen.redraw()

    def _tick(self) -> None:
        # Only what counts seconds needs a look each second; ages move in steps of five.
        self._ticks += 1
        lively = any(
            h.retry_at is not None or any(s.tx is not None and s.tx.running for s in h.services)
            for h in self.snapshot.hosts
        )
        if lively or self._ticks % AGE == 0:
            self.draw_top()

    def ticks(self) -> float:
        """The app's own monotonic clock."""
        return self._clock()

    def now(self) -> float:
        """The snapshot's clock, now."""
        return self.snapshot.now + (self._clock() - self._received)

    def host_time(self, key: str) -> float:
        """CLOCK_BOOTTIME of the service's host, estimated from its last event; stands still while the host is away."""
        service = self.snapshot.service(key)
        if service is None or service.tx is None:
            return 0.0
        host = next((h for h in self.snapshot.hosts if service in h.services), None)
        seen = self._moments.get(key, (0, self._clock()))[1]
        if not service.tx.running or host is None or host.link not in ("up", "unprivileged"):
            return service.tx.t
        return service.tx.t + max(0.0, self._clock() - seen)

    def badges(self) -> list[str]:
        """Words that stay on every screen."""
        return [*(["DEMO"] if self.demo else []), *(["READ-ONLY"] if self.read_only else [])]

    def time_text(self) -> str:
        """Hours and minutes: it changes once a minute."""
        return time.strftime("%H:%M", time.localtime(self.wall()))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Greyed (None) where it is not allowed now, hidden (False) where it makes no sense."""
        target = self.target_key()
        if isinstance(self.screen, ConsoleScreen) and action in self.screen.not_here:
            return False
        if action == "extend" and (not self.in_flight(target) or self.typing()):
            return False
        if action == "apply" and self.finding(target) is None:
            return False
        if action in NEED_TARGET and not target:
            return None
        watching = action == "deploy" and self.in_flight(target)
        if action in CHANGES_A_HOST and self.read_only and not watching:
            return None
        return super().check_action(action, parameters)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: every key's action, every host and service, the two themes."""
        yield from self.palette_commands(self.target_key())
