"""HTTP health of one host's services: one task a service, asking only where there is something to ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ddtree_console.domain.engines.base import Engine, Figures
from ddtree_console.domain.service_state import proved
from ddtree_console.domain.snapshot import HttpState, ServiceSnapshot
from ddtree_console.domain.spec import Service
from ddtree_console.services.ask import Asker, Target, dialled
from ddtree_console.services.probe import Probe

TICK = 1.0


@dataclass(frozen=True)
class Askers:
    """Both ways to ask of one connection."""

    channel: Asker
    host: Asker


def worth_asking(service: ServiceSnapshot) -> bool:
    """A process of ours may answer, and no transaction is asking it already."""
    if service.unit is None or service.unit.active not in ("active", "reloading"):
        return False
    if service.listener.state in ("foreign", "nobody"):
        return False
    return service.tx is None or not service.tx.running or token_seen(service)


def token_seen(service: ServiceSnapshot) -> bool:
    """The transaction that runs has seen a token of the process that runs."""
    attempt = service.tx.attempt if service.tx is not None and service.tx.running else None
    if attempt is None or service.unit is None or attempt.invocation != service.unit.invocation:
        return False
    return any(rung.name == "token" and rung.state == "ok" for rung in attempt.rungs)


def log_figures(engine: Engine, lines: Callable[[], list[str]]) -> Figures | None:
    """Figures of the newest decode line among recent log lines, None without one."""
    reader = engine.reader()
    newest: Figures | None = None
    for line in lines():
        for fact in reader.feed(line):
            if fact.kind == "decode" and isinstance(fact.value, Figures):
                newest = fact.value
    return newest


class HttpProber:
    """Keeps one service's HttpState fresh until cancelled. get: its snapshot; put: takes the new state."""

    def __init__(
        self,
        service: Service,
        engine: Engine,
        askers: Callable[[], Askers | None],
        get: Callable[[], ServiceSnapshot],
        put: Callable[[HttpState], None],
        lines: Callable[[], list[str]],
        clock: Callable[[], float],
    ) -> None:
        self.service = service
        self._askers, self._get, self._put = askers, get, put
        self._probe = Probe(engine, clock, lambda: log_figures(engine, lines))
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Something about the service changed."""
        self._wake.set()

    async def run(self) -> None:
        """Asks while there is something to ask, and otherwise waits for a change."""
        while True:
            self._wake.clear()
            snapshot, askers = self._get(), self._askers()
            if askers is None or not worth_asking(snapshot):
                await self._wake.wait()
                continue
            await self._once(snapshot, askers)
            await asyncio.sleep(TICK)

    async def _once(self, snapshot: ServiceSnapshot, askers: Askers) -> None:
        assert snapshot.unit is not None
        invocation = snapshot.unit.invocation
        self._probe.begin(invocation)
        asker = askers.host if self._probe.wants_host else askers.channel
        target = Target(self.service.port, dialled(snapshot.listener.address), snapshot.unit.main_pid)
        before, proven = self._probe.state, proved(snapshot) or token_seen(snapshot)
        state = await self._probe.step(asker, target, proven)
        if self._probe.wants_host and asker is askers.channel:
            # Forbidden, or a key is set: what the channel said tells nothing about the server.
            state = await self._probe.step(askers.host, target, proven)
        now = self._get().unit
        if state != before and now is not None and now.invocation == invocation:
            self._put(state)
