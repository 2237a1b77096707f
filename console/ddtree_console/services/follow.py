"""Events of a transaction to its outcome: from the watcher, or from the host's file where the watcher has moved on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ddtree_console.domain.events import OUTCOME, Event, parse
from ddtree_console.domain.spec import Service
from ddtree_console.services.commands import Commands
from ddtree_console.services.errors import HostError
from ddtree_console.services.hostwatch import HostWatch
from ddtree_console.services.monitor import FleetMonitor

REREAD, ENOUGH = 1.0, 20
"""Seconds between looks at the file, and how many looks without anything new mean that nothing will come."""


async def whole(commands: Commands, unit: str, tx: str) -> list[Event]:
    """All events of a transaction that the host has, in order; HostError as Commands.call."""
    lines = await commands.raw("events", {"unit": unit, "tx": tx}, 60.0)
    found = (parse(line.decode("utf-8", "replace")) for line in lines)
    return sorted((e for e in found if e is not None and e.tx == tx), key=lambda e: e.n)


class Follower:
    """One reader of one transaction. The watcher sends the newest one whole after each reconnect."""

    def __init__(self, monitor: FleetMonitor, service: Service, tx: str) -> None:
        self._monitor, self._service, self._tx = monitor, service, tx
        self._watch: HostWatch = monitor.hosts[service.host]
        self._last = -1
        self._vain = 0

    def _new(self, found: list[Event]) -> list[Event]:
        fresh = [e for e in found if e.n > self._last]
        if fresh:
            self._last, self._vain = fresh[-1].n, 0
        return fresh

    async def events(self) -> AsyncIterator[Event]:
        """Until the outcome, across reconnects; HostError(5) where no more can come."""
        while True:
            serial = self._monitor.snapshot().serial
            found = self._watch.events(self._service.unit, self._tx)
            other = found is None and self._watch.newest_tx(self._service.unit) not in ("", self._tx)
            if other:
                found = await self._from_file()
            for event in self._new(found or []):
                yield event
                if event.kind == OUTCOME:
                    return
            if self._watch.link_state.link == "refused":
                raise HostError(self._service.host, "follow", self._watch.link_state.error, "then follow again", 5)
            if other:
                await self._wait_for_the_file()
            else:
                await self._monitor.changed(serial)

    async def _from_file(self) -> list[Event]:
        """An older transaction is in its file; a newer one is about to be told by the watcher."""
        try:
            return await whole(self._watch.commands, self._service.unit, self._tx)
        except HostError as error:
            if error.code != 5:
                raise
            return []

    async def _wait_for_the_file(self) -> None:
        self._vain += 1
        if self._vain > ENOUGH:
            cause = f"no {'more' if self._last >= 0 else ''} events of {self._tx}".replace("  ", " ")
            raise HostError(self._service.host, "follow", cause, "see `history` for what became of it", 5)
        await asyncio.sleep(REREAD)
