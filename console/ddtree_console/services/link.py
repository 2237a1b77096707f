"""One host's connection: a watcher, a journal follower and short commands over it, and what to do when it is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ddtree_console.domain.spec import Host
from ddtree_console.services.errors import HostError
from ddtree_console.services.launcher import Launcher, LauncherFactory
from ddtree_console.services.session import Session, Sink
from ddtree_console.transport.base import Process, Transport, TransportError

NEVER_RETRIED = frozenset({"unknown-key", "changed-key", "locked-key", "auth", "config"})
FIRST_DELAY, LONGEST_DELAY = 1.0, 30.0
OpenTransport = Callable[[Host], Transport]


@dataclass(frozen=True)
class LinkState:
    """As in HostSnapshot; latency: seconds from dialling to the watcher's first word."""

    link: str = "connecting"
    error: str = ""
    attempt: int = 0
    retry_at: float | None = None
    privileged: bool = True
    latency: float | None = None


class LinkSink(Sink, Protocol):
    """A sink that is told of the connection's state, too."""

    def link_changed(self, state: LinkState) -> None:
        """The connection's state changed."""
        ...


def delay(attempt: int, random: Callable[[], float]) -> float:
    """Seconds before the next attempt: doubling, capped, half of it jitter so that a fleet does not dial at once."""
    full = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(attempt - 1, 10))
    return full * (0.5 + random() / 2)


class HostLink:
    """Keeps one host connected until `run` is cancelled. clock: monotonic seconds; random: 0..1."""

    def __init__(
        self,
        host: Host,
        open_transport: OpenTransport,
        launcher: LauncherFactory,
        sink: LinkSink,
        clock: Callable[[], float],
        random: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.host, self.sink = host, sink
        self._open_transport, self._new_launcher = open_transport, launcher
        self._clock, self._random, self._sleep = clock, random, sleep
        self.state = LinkState()
        self.transport: Transport | None = None
        self.launcher: Launcher | None = None
        self._watcher: Process | None = None
        self._again = asyncio.Event()
        self._up = asyncio.Event()
        self._failed = asyncio.Event()
        self._met = False

    def _set(self, **change: Any) -> None:
        self.state = replace(self.state, **change)
        up = self.state.link in ("up", "unprivileged")
        (self._up.set if up else self._up.clear)()
        (self._failed.set if self._gave_up() else self._failed.clear)()
        self.sink.link_changed(self.state)

    def _gave_up(self) -> bool:
        """Refused, or an attempt to connect failed; a connection that was up and broke is worth waiting for."""
        return self.state.link == "refused" or (self.state.link == "down" and self.state.attempt > 0)

    def retry(self) -> None:
        """Dial again now, also where it is never done by itself."""
        self._again.set()

    async def run(self) -> None:
        """Connects, follows, reconnects; ends only by cancellation."""
        while True:
            self._again.clear()
            self._set(link="connecting", attempt=self.state.attempt + 1, retry_at=None)
            failure = await self._once()
            if failure.kind in NEVER_RETRIED:
                self._set(link="refused", error=str(failure))
                await self._again.wait()
                continue
            wait = delay(self.state.attempt, self._random)
            self._set(link="down", error=str(failure), retry_at=self._clock() + wait)
            await self._pause(wait)

    async def _pause(self, seconds: float) -> None:
        timer = asyncio.ensure_future(self._sleep(seconds))
        again = asyncio.ensure_future(self._again.wait())
        try:
            await asyncio.wait((timer, again), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            again.cancel()

    async def _once(self) -> TransportError:
        """One connection from dialling to its loss; returns why it ended."""
        transport = self._open_transport(self.host)
        began = self._clock()
        try:
            await transport.connect()
            return await self._session(transport, began)
        except TransportError as error:
            return error
        except HostError as error:
            return TransportError("host", error.host, error.action, error.cause, error.next_step)
        finally:
            self.transport = self._watcher = None
            self._up.clear()
            # A cancelled task must still hand the connection back.
            await asyncio.shield(asyncio.ensure_future(transport.close()))

    async def _session(self, transport: Transport, began: float) -> TransportError:
        """What arrives, from the watcher's first word to the loss; returns why it ended."""
        self.launcher = launcher = self._new_launcher(self.host)
        session = Session(self.host.name, transport, launcher, self.sink, self._pause_follower)
        hello = await session.open()
        self.transport, self._watcher = transport, session.watcher
        privileged = bool(hello.get("privileged", launcher.privileged)) and launcher.privileged
        self._set(
            link="up" if privileged else "unprivileged",
            error="" if privileged else f"{self.host.name}: read-only: {launcher.why or 'not root on the host'}",
            attempt=0,
            privileged=privileged,
            latency=self._clock() - began,
        )
        self.sink.message(hello)
        again, self._met = self._met, True
        return await session.follow(again)

    async def _pause_follower(self, failures: int) -> None:
        await self._sleep(delay(failures, self._random))

    async def ready(self, action: str, patience: float = 15.0) -> tuple[Transport, Launcher]:
        """Transport and launcher once connected; HostError(5) when refused, or not up after `patience` seconds."""
        deadline = self._clock() + patience
        while not self._up.is_set() or self.transport is None or self.launcher is None:
            if self._gave_up():
                raise HostError(self.host.name, action, self.state.error or "not connected", "see `check`", 5)
            left = deadline - self._clock()
            waits = [asyncio.ensure_future(e.wait()) for e in (self._up, self._failed)]
            try:
                done, _ = await asyncio.wait(waits, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            if not done:
                raise HostError(
                    self.host.name, action, f"no connection within {patience:.0f} s", "is the host reachable?", 5
                )
        return self.transport, self.launcher

    async def send(self, message: Mapping[str, Any]) -> None:
        """A line to the watcher; HostError when it is not there."""
        await self.ready("ask the watcher")
        try:
            if self._watcher is not None:
                await self._watcher.send(json.dumps(message).encode())
        except TransportError as error:
            raise HostError(error.host, error.action, error.cause, error.next_step, 5) from error
