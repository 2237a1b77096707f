"""Going back: no gate, one message to a command that waits for it, or a request to the transaction that runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ddtree_console.domain.snapshot import HostSnapshot, ServiceSnapshot
from ddtree_console.domain.spec import Service
from ddtree_console.services.api import RollbackPreview
from ddtree_console.services.commands import Armed, Commands
from ddtree_console.services.errors import HostError

ARMED_FOR = 20.0
"""Seconds that a waiting `submit` is kept after the countdown began."""


def target(service: Service, snapshot: ServiceSnapshot, to: str) -> str:
    """What would serve afterwards, by name; '' when there is nothing to go to."""
    release = snapshot.release
    if to == "way-back":
        return service.fallback or service.fallback_service or release.way_back
    if to == "known-good":
        return release.previous or release.known_good
    return to if to in release.kept or not release.kept else ""


def preview(service: Service, host: HostSnapshot, snapshot: ServiceSnapshot, to: str, why_not: str) -> RollbackPreview:
    """What the countdown names; why_not: why this console may not do it, '' when it may."""
    goal = target(service, snapshot, to)
    if not why_not and not goal:
        why_not = f"nothing to go back to: the slot has no {to.replace('-', ' ')}"
    if not why_not and host.link == "unprivileged":
        why_not = host.error
    running = snapshot.http.running
    return RollbackPreview(service.key, to, goal, running, why_not)


class Trigger:
    """A `submit` that was started while the countdown ran, so that only the plan has to travel."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._armed: Armed | None = None
        self._starting: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None

    def arm(self) -> None:
        """Starts one unless one waits; a failure only costs the head start."""
        if self._armed is None and (self._starting is None or self._starting.done()):
            self._starting = asyncio.ensure_future(self._start())

    async def _start(self) -> None:
        try:
            self._armed = await self._commands.arm("submit")
        except HostError:
            return
        self._expiry = asyncio.get_running_loop().call_later(ARMED_FOR, self._expire)

    def _expire(self) -> None:
        armed, self._armed = self._armed, None
        if armed is not None:
            self._starting = asyncio.ensure_future(armed.close())

    async def submit(self, plan: Mapping[str, Any]) -> dict[str, Any]:
        """The host's answer, through the waiting command where there is one; HostError for a refusal."""
        if self._starting is not None and not self._starting.done():
            # It waits behind slower commands; going back does not.
            self._starting.cancel()
        self._starting = None
        if self._expiry is not None:
            self._expiry.cancel()
        armed, self._armed = self._armed, None
        if armed is not None and not armed.usable:
            await armed.close()
            armed = None
        if armed is None:
            try:
                armed = await self._commands.arm("submit", urgent=True)
            except HostError:
                return await self._commands.call("submit", plan)
        return await armed.fire(plan)

    async def close(self) -> None:
        """Ends a waiting command."""
        if self._expiry is not None:
            self._expiry.cancel()
        armed, self._armed = self._armed, None
        if armed is not None:
            await armed.close()
