"""A journal pane that pulls the lines of one service from the services, four times a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from textual import events

from ddtree_console.ui.widgets.journal import JournalPane

if TYPE_CHECKING:
    from ddtree_console.ui.app import ConsoleApp

PERIOD = 0.25
FIRST, BATCH = 2000, 500
"""lines taken at one time at most, at first and then; what a flood brings beyond that is counted, not drawn. 500 cost
some 5 ms, in which no key is answered."""


class JournalFeed(JournalPane):
    """Give it a service with watch_service."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.key = ""
        self.paused = False
        self.flooded = False
        """the last flush was full"""
        self._rest = False

    def on_mount(self) -> None:
        """One flush each PERIOD."""
        self.set_interval(PERIOD, self._tick)

    def _tick(self) -> None:
        """In a flood, which nobody can read, every other flush is left to the keys."""
        self._rest = not self._rest and self.flooded
        if not self._rest:
            self.pull()

    def watch_service(self, key: str) -> None:
        """The lines of that service from now on."""
        if key == self.key:
            return
        self.key = key
        self.is_probe = self._prober(key)
        self.reset()
        self.pull()

    def _prober(self, key: str) -> Callable[[str], bool]:
        """The engine of the service knows how its access lines of probes look."""
        from ddtree_console.domain.engines.registry import get

        services = cast("ConsoleApp", self.app).services
        if services is None:
            return lambda text: False
        profile = services.fleet.profiles.get(services.fleet.service(key).profile)
        reader = get(profile.engine if profile is not None else "sglang").reader()
        return lambda text: "HTTP/" in text and any(f.kind == "access" for f in reader.feed(text[:1000]))

    def pull(self) -> None:
        """Takes what is new, unless paused or hidden under another screen."""
        app = cast("ConsoleApp", self.app)
        if not self.key or app.services is None or self.paused or not self.screen.is_current:
            return
        lines = app.services.journal(self.key, self.after, BATCH if self.after >= 0 else FIRST)
        self.flooded = self.after >= 0 and len(lines) >= BATCH
        self.feed(lines)

    def note(self) -> str:
        """following, paused, counts: for a heading."""
        app = cast("ConsoleApp", self.app)
        dropped = app.services.dropped(self.key) if app.services is not None and self.key else 0
        parts = [f"{self.count:,} line{'' if self.count == 1 else 's'}"]
        if self.skipped + dropped:
            parts.append(f"+{self.skipped + dropped:,} dropped")
        if self.folded:
            parts.append(f"{self.folded:,} of probes folded")
        if self.paused:
            parts.append("paused")
        elif self.following:
            parts.append("following")
        else:
            parts.append(f"{self.unseen:,} new below, f follows" if self.unseen else "f follows")
        return " · ".join(parts)

    async def on_event(self, event: events.Event) -> None:
        """Pulls at once when its screen comes back."""
        await super().on_event(event)
        if isinstance(event, events.Show):
            self.pull()
