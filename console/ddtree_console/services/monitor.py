"""Every host's state, live: links, watchers, journals and probes of a fleet folded into snapshots with a serial."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ddtree_console.domain.engines.base import Engine
from ddtree_console.domain.snapshot import FleetSnapshot, HostSnapshot
from ddtree_console.domain.spec import Fleet
from ddtree_console.services.hostwatch import HostWatch
from ddtree_console.services.launcher import LauncherFactory
from ddtree_console.services.link import OpenTransport


class FleetMonitor:
    """All hosts of a fleet. Snapshots are built only when somebody asks; a change costs a counter."""

    def __init__(
        self,
        fleet: Fleet,
        open_transport: OpenTransport,
        launcher: LauncherFactory,
        engine: Callable[[str], Engine],
        clock: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        self.fleet, self._clock = fleet, clock
        self._serial = 1
        self._built: FleetSnapshot | None = None
        self._changed = asyncio.Event()
        self.hosts: dict[str, HostWatch] = {
            host.name: HostWatch(host, fleet.profiles, open_transport, launcher, engine, self._bump, clock, random)
            for host in fleet.hosts
        }

    def _bump(self) -> None:
        self._serial += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Keeps all hosts live until cancelled; one host's trouble never ends another's."""
        async with asyncio.TaskGroup() as group:
            for host in self.hosts.values():
                group.create_task(host.run())

    def snapshot(self) -> FleetSnapshot:
        """The state now; `now` is the console's monotonic time, so that ages can be told."""
        if self._built is None or self._built.serial != self._serial:
            hosts = tuple(host.snapshot() for host in self.hosts.values())
            self._built = FleetSnapshot(self._serial, self._clock(), hosts)
        else:
            self._built = replace(self._built, now=self._clock())
        return self._built

    async def changed(self, serial: int) -> FleetSnapshot:
        """A snapshot newer than `serial`, as soon as there is one."""
        while self._serial <= serial:
            await self._changed.wait()
        return self.snapshot()

    def host(self, name: str) -> HostSnapshot:
        """One host now; KeyError for an unknown name."""
        return self.hosts[name].snapshot()

    def retry(self, name: str) -> None:
        """Dials a host again now."""
        self.hosts[name].link.retry()

    def errors(self, name: str) -> Mapping[str, Any]:
        """What the host's watcher could not read: part -> why."""
        return self.hosts[name].notes
