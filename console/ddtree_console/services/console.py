"""The live console: services.api.Console made of the monitor and the use cases beside this file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from random import random as fair
from typing import Any, Protocol

from ddtree_console.domain.build import FlagMark
from ddtree_console.domain.engines import registry
from ddtree_console.domain.engines.base import Engine
from ddtree_console.domain.events import Event
from ddtree_console.domain.memory.types import Estimate
from ddtree_console.domain.snapshot import FleetSnapshot
from ddtree_console.domain.spec import Fleet, Profile, Service
from ddtree_console.services import adopt, compare, history, kept, plans, plugin, preflight, preview, rollback
from ddtree_console.services.api import (
    Check,
    DeployPreview,
    HistoryEntry,
    JournalLine,
    Preflight,
    RollbackPreview,
    Submitted,
)
from ddtree_console.services.commands import Refused
from ddtree_console.services.errors import HostError
from ddtree_console.services.follow import Follower
from ddtree_console.services.hostwatch import HostWatch
from ddtree_console.services.launcher import LauncherFactory
from ddtree_console.services.link import OpenTransport
from ddtree_console.services.monitor import FleetMonitor


class Store(Protocol):
    """Profiles on disk; blocking, short. config.store brings it."""

    def profiles(self) -> Mapping[str, Profile]:
        """All of them, resolved."""
        ...

    def save(self, base: str, name: str, profile: Profile) -> object:
        """Writes `name` extending `base`; returns the path."""
        ...


def _on_disk(action: str, error: Exception) -> HostError:
    """What is wrong with a profile's file, as the API's error."""
    problems = getattr(error, "problems", None)
    cause = "; ".join(map(str, problems)) if problems else str(error.args[-1] if error.args else error)
    return HostError("profiles", action, cause, "correct it, then try again", 2)


class LiveConsole:
    """As services.api.Console. clock: monotonic seconds; random: 0..1; rules: the operator's own rules of findings."""

    def __init__(
        self,
        fleet: Fleet,
        store: Store,
        open_transport: OpenTransport,
        launcher: LauncherFactory,
        operator: plans.Operator,
        *,
        read_only: bool = False,
        engine: Callable[[str], Engine] = registry.get,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = fair,
        rules: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.fleet, self.read_only, self._store, self._operator = fleet, read_only, store, operator
        self.monitor = FleetMonitor(fleet, open_transport, launcher, engine, clock, random)
        self._planner = plans.Planner(fleet, operator, rules)
        self._preflights = preflight.Preflights(clock)
        self._triggers = {name: rollback.Trigger(watch.commands) for name, watch in self.monitor.hosts.items()}

    async def run(self) -> None:
        """As Console.run."""
        try:
            await self.monitor.run()
        finally:
            await asyncio.gather(*(t.close() for t in self._triggers.values()), return_exceptions=True)

    def snapshot(self) -> FleetSnapshot:
        """As Console.snapshot."""
        return self.monitor.snapshot()

    async def changed(self, serial: int) -> FleetSnapshot:
        """As Console.changed."""
        return await self.monitor.changed(serial)

    def retry(self, host: str) -> None:
        """Dials a host again now, also where that is never done by itself."""
        self.monitor.retry(host)

    def _slot(self, key: str) -> tuple[Service, HostWatch]:
        try:
            service = self.fleet.service(key)
        except KeyError as error:
            known = ", ".join(s.key for h in self.fleet.hosts for s in h.services) or "none"
            raise HostError(
                key, "find the service", f"{key} is not in {self.fleet.path}", f"services: {known}", 2
            ) from error
        return service, self.monitor.hosts[service.host]

    def _may_change(self, key: str, action: str) -> None:
        if self.read_only:
            raise HostError(key, action, "this console is read-only", "start it without --read-only", 7)

    def journal(self, key: str, after: int = -1, limit: int = 2000) -> Sequence[JournalLine]:
        """As Console.journal."""
        service, watch = self._slot(key)
        return watch.journals.read(service.unit, after, limit)

    def dropped(self, key: str) -> int:
        """As Console.dropped."""
        service, watch = self._slot(key)
        return watch.journals.rings[service.unit].dropped

    async def profiles(self) -> Mapping[str, Profile]:
        """As Console.profiles; HostError(2) for a broken file."""
        try:
            return await asyncio.to_thread(self._store.profiles)
        except (ValueError, OSError) as error:
            raise _on_disk("read the profiles", error) from error

    async def kept_profile(self, key: str, release: str) -> Profile | None:
        """As Console.kept_profile."""
        service, watch = self._slot(key)
        return kept.profile(await watch.commands.call("read", {"unit": service.unit}), release)

    async def save_profile(self, base: str, name: str, edited: Profile) -> str:
        """As Console.save_profile."""
        try:
            return str(await asyncio.to_thread(self._store.save, base, name, edited))
        except (ValueError, KeyError, OSError) as error:
            raise _on_disk(f"save profile {name}", error) from error

    async def preview(self, key: str, profile: str | Profile) -> DeployPreview:
        """As Console.preview."""
        service, watch = self._slot(key)
        profiles = await self.profiles()
        wanted = self._preflights.fitted(key, plans.find_profile(profiles, service, profile))
        read = await watch.commands.call("read", {"unit": service.unit})
        committed = str(read.get("committed") or "")
        words = self._planner.failure_words(service, committed, "back")
        stored = profiles.get(wanted.name) or profiles.get(wanted.extends or "")
        host, snapshot = watch.snapshot(), watch.service(service.name)
        return preview.build(service, wanted, stored, read, host, snapshot, words)

    async def preview_rollback(self, key: str, to: str = "way-back") -> RollbackPreview:
        """As Console.preview_rollback; also starts the command that will take the plan."""
        service, watch = self._slot(key)
        why_not = "this console is read-only" if self.read_only else ""
        found = rollback.preview(service, watch.snapshot(), watch.service(service.name), to, why_not)
        if not found.refusal:
            self._triggers[service.host].arm()
        return found

    async def deploy(
        self,
        key: str,
        profile: str | Profile,
        *,
        on_failure: str = "back",
        hold: float | None = None,
        reason: str = "",
        force: bool = False,
        takeover: bool = False,
    ) -> Submitted:
        """As Console.deploy."""
        service, watch = self._slot(key)
        self._may_change(key, "deploy")
        profiles = await self.profiles()
        wanted = plans.find_profile(profiles, service, profile)
        if not force:
            failed = await self._preflights.gate(watch, service, wanted, profiles)
            if failed:
                raise preflight.ChecksFailed(key, failed)
        choice = plans.Choice(on_failure, hold, reason, force, takeover)
        flags = self._preflights.flags(key, wanted)
        fitted = self._preflights.fitted(key, wanted)
        plan = self._planner.deploy(service, fitted, profiles, choice, flags)
        await plugin.carry(watch.commands, fitted, profiles.get(service.fallback or ""))
        answer = await watch.commands.call("submit", plan.to_json(), 60.0)
        return Submitted(key, str(answer.get("tx") or ""))

    async def rollback(self, key: str, to: str = "way-back", *, takeover: bool = False) -> Submitted:
        """As Console.rollback."""
        service, watch = self._slot(key)
        self._may_change(key, "roll back")
        tx = watch.service(service.name).tx
        if tx is not None and tx.running and not takeover and await self._ask_to_go_back(service, watch, tx.tx, to):
            return Submitted(key, tx.tx)
        # Profiles as loaded with the fleet: a file that was broken since must not stop a way back.
        known = self.fleet.profiles
        try:
            await plugin.carry(watch.commands, known.get(service.fallback or ""))
        except HostError:
            # Its unit would not find the plug-in; the host keeps the way back of the last deployment.
            known = {}
        plan = self._planner.rollback(service, to, known, takeover)
        try:
            answer = await self._triggers[service.host].submit(plan.to_json())
        except Refused as refused:
            # A transaction began since the last report; the host names it.
            if not refused.holder_tx or takeover:
                raise
            await self._ask(service, watch, refused.holder_tx, "back", to)
            return Submitted(key, refused.holder_tx)
        return Submitted(key, str(answer.get("tx") or ""))

    async def _ask_to_go_back(self, service: Service, watch: HostWatch, tx: str, to: str) -> bool:
        """False where the transaction has ended since the last report: a new one has to go back."""
        try:
            await self._ask(service, watch, tx, "back", to)
        except Refused as refused:
            if refused.code != 7:
                raise
            return False
        return True

    async def request(self, key: str, what: str) -> None:
        """As Console.request."""
        service, watch = self._slot(key)
        self._may_change(key, what)
        tx = watch.service(service.name).tx
        if tx is None or not tx.running:
            raise HostError(key, what, "no transaction runs", "see `history`", 7)
        await self._ask(service, watch, tx.tx, what, "")

    async def _ask(self, service: Service, watch: HostWatch, tx: str, what: str, to: str) -> None:
        payload = {"unit": service.unit, "tx": tx, "request": what, "who": self._operator.who}
        await watch.commands.call("request", {**payload, "to": to} if to else payload, 30.0)

    def follow(self, key: str, tx: str) -> AsyncIterator[Event]:
        """As Console.follow."""
        service, _ = self._slot(key)
        return Follower(self.monitor, service, tx).events()

    async def history(self, key: str, limit: int = 200) -> Sequence[HistoryEntry]:
        """As Console.history."""
        service, watch = self._slot(key)
        return await history.history(watch.commands, service.unit, limit)

    async def logs(self, key: str, *, lines: int = 1000, invocation: str = "") -> Sequence[JournalLine]:
        """As Console.logs."""
        service, watch = self._slot(key)
        return await history.logs(watch.commands, service.unit, lines, invocation)

    async def check(self, host: str, service: str = "") -> Sequence[Check]:
        """As Console.check."""
        watch = self._watch(host)
        return await self._preflights.host(watch, service, await self.profiles())

    async def compare(self, a: str, b: str) -> compare.Comparison:
        """The environments of two services, each with its current profile; HostError where one cannot be asked."""
        profiles = await self.profiles()

        async def side(key: str) -> compare.Side:
            service, watch = self._slot(key)
            return await compare.side(watch, service, plans.find_profile(profiles, service, ""), profiles)

        return compare.compare(*await asyncio.gather(side(a), side(b)))

    async def preflight(self, key: str, profile: str | Profile) -> Preflight:
        """As Console.preflight."""
        service, watch = self._slot(key)
        profiles = await self.profiles()
        wanted = plans.find_profile(profiles, service, profile)
        return await self._preflights.run(watch, service, wanted, profiles)

    def forecast(self, key: str, profile: Profile) -> tuple[tuple[FlagMark, ...], Estimate | None]:
        """As Console.forecast."""
        service, watch = self._slot(key)
        return self._preflights.forecast(watch, service, profile)

    async def accept_drift(self, key: str) -> None:
        """As Console.accept_drift."""
        service, watch = self._slot(key)
        self._may_change(key, "accept drift")
        seen = [{"flag": d.flag, "asked": d.asked, "effective": d.effective} for d in watch.service(service.name).drift]
        payload = {"unit": service.unit, "drift": seen, "who": self._operator.who}
        await watch.commands.call("accept-drift", payload)

    def _watch(self, host: str) -> HostWatch:
        if host not in self.monitor.hosts:
            known = ", ".join(self.monitor.hosts) or "none"
            raise HostError(host, "find the host", f"{host} is not in {self.fleet.path}", f"hosts: {known}", 2)
        return self.monitor.hosts[host]

    async def adopt(self, host: str, unit: str) -> tuple[str, str]:
        """As Console.adopt."""
        watch = self._watch(host)
        self._may_change(host, "adopt")
        unit = unit if "." in unit else f"{unit}.service"
        profiles = await self.profiles()
        found = await adopt.read(watch.commands, unit)
        adopted = adopt.as_profile(found, adopt.profile_name(unit, profiles))
        service = next((s for s in watch.host.services if s.unit == unit), None)
        way_back = None
        if service is not None and service.fallback is not None and service.fallback in profiles:
            way_back = plans.candidate(profiles[service.fallback], service)
            await plugin.carry(watch.commands, profiles[service.fallback])
        await adopt.keep(watch.commands, unit, adopted, way_back, self._operator.who)
        path = await self.save_profile("", adopted.profile.name, adopted.profile)
        return adopted.profile.name, path
