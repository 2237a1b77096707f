"""A live console as its operator sees it: every word that a service had is noted, so that none of them can be false."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ddtree_console.config.load import load_fleet
from ddtree_console.config.rules import load_rules
from ddtree_console.config.store import ProfileStore
from ddtree_console.domain.events import Event
from ddtree_console.domain.service_state import State, service_state
from ddtree_console.domain.snapshot import HostSnapshot, ServiceSnapshot
from ddtree_console.domain.spec import Host
from ddtree_console.services.api import JournalLine
from ddtree_console.services.console import LiveConsole
from ddtree_console.services.plans import Operator
from ddtree_console.transport.bootstrap import launcher
from ddtree_console.transport.ssh import SshTransport
from tests.lab.faults_net.place import KEY, Place

GLANCE = 0.1
"""Seconds between two looks where nothing changes: an age grows all the same."""


@dataclass(frozen=True)
class Seen:
    """What the row said at one moment (monotonic seconds)."""

    at: float
    link: str
    text: str
    running: bool
    detail: str


class Station:
    """One operator at one console."""

    def __init__(self, console: LiveConsole) -> None:
        self.console = console
        self.seen: list[Seen] = []

    def host(self) -> HostSnapshot:
        """The host as it is shown."""
        return self.console.snapshot().hosts[0]

    def service(self) -> ServiceSnapshot:
        """The service as it is shown."""
        return self.host().services[0]

    def state(self) -> State:
        """The service's word now, with the reason."""
        snapshot = self.console.snapshot()
        return service_state(snapshot.hosts[0], snapshot.hosts[0].services[0], snapshot.now)

    async def look(self) -> None:
        """Notes every word until cancelled."""
        while True:
            tx = self.service().tx
            running = tx is not None and tx.running
            now = Seen(time.monotonic(), self.host().link, self.state().text, running, self.state().detail)
            if not self.seen or (now.link, now.text, now.running) != (
                self.seen[-1].link,
                self.seen[-1].text,
                self.seen[-1].running,
            ):
                self.seen.append(now)
            await self.glance()

    async def glance(self) -> None:
        """A change, or a moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GLANCE):
                await self.console.changed(self.console.snapshot().serial)

    def words(self, since: int = 0) -> list[str]:
        """Every text of the row from that note on."""
        return [one.text for one in self.seen[since:]]

    async def until(self, holds: Callable[[], Any], timeout: float = 30.0) -> float:
        """Seconds until `holds` was true."""
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > timeout:
                raise AssertionError(f"not within {timeout} s: {self.state()}\n{self.host()}\n{self.words()}")
            await self.glance()
        return time.monotonic() - began

    async def up(self, link: str = "up") -> None:
        """Connected, with a first report of the unit, the slot and its newest transaction."""
        await self.until(lambda: self.host().link == link and self.service().unit is not None)

    async def deploy(self, profile: str = "slow", **more: Any) -> tuple[str, asyncio.Task[list[Event]]]:
        """Starts a deployment and returns when it waits for the server: its id, and its events once it has ended."""
        tx = (await self.console.deploy(KEY, profile, **more)).tx
        following = asyncio.ensure_future(self.follow(tx))
        await self.until(lambda: following.done() or self.waits(tx))
        return tx, following

    def waits(self, tx: str) -> bool:
        """Whether that transaction is shown as waiting for its server."""
        view = self.service().tx
        attempt = view.attempt if view is not None and view.tx == tx and view.running else None
        return attempt is not None and any(step.name == "wait" for step in attempt.steps)

    async def follow(self, tx: str) -> list[Event]:
        """Its events to the outcome."""
        async with asyncio.timeout(60):
            return [event async for event in self.console.follow(KEY, tx)]

    async def ready(self, release: str) -> None:
        """The row says ready, of that release."""
        await self.until(lambda: self.service().release.committed == release and self.state().text == "● ready")

    def journal(self) -> Sequence[JournalLine]:
        """All lines that are kept."""
        return self.console.journal(KEY, -1, 1_000_000)


@contextlib.asynccontextmanager
async def station(
    place: Place, who: str = "ann", keepalive: float = 0.5, random: Callable[[], float] = lambda: 0.0
) -> AsyncIterator[Station]:
    """A console that follows its host until the end of the block. random: 0 is the shortest pause before a redial."""

    def open_host(host: Host) -> SshTransport:
        return SshTransport(host, keepalive=keepalive)

    fleet = load_fleet(place.fleet)
    operator = Operator(f"{who}@desk", f"desk-of-{who}")
    console = LiveConsole(fleet, ProfileStore(place.folder), open_host, launcher(load_rules), operator, random=random)
    here = Station(console)
    tasks = [asyncio.ensure_future(console.run()), asyncio.ensure_future(here.look())]
    try:
        yield here
        for task in tasks:
            assert not task.done(), task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
