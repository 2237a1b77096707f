"""One host, live: what its link brings is folded into its snapshot, its journal rings and its probes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ddtree_console.domain.engines.base import Engine
from ddtree_console.domain.events import Event
from ddtree_console.domain.snapshot import HostSnapshot, HttpState, ServiceSnapshot
from ddtree_console.domain.spec import Host, Profile, Service
from ddtree_console.services.ailments import Ailments, Seen, fold
from ddtree_console.services.ask import ChannelAsker, HostAsker
from ddtree_console.services.commands import Commands
from ddtree_console.services.http import Askers, HttpProber
from ddtree_console.services.journal import JournalFeed
from ddtree_console.services.launcher import LauncherFactory
from ddtree_console.services.link import HostLink, LinkState, OpenTransport
from ddtree_console.services.reduce import initial, reduce

GPU_INTERVAL, UNIT_INTERVAL, HTTP_INTERVAL = 2.0, 1.0, 2.0
LOOKED_AT = 40
"""Newest log lines that are looked at for decode figures."""


class HostWatch:
    """Owns the link of one host and everything that is fed by it."""

    def __init__(
        self,
        host: Host,
        profiles: Mapping[str, Profile],
        open_transport: OpenTransport,
        launcher: LauncherFactory,
        engine: Callable[[str], Engine],
        on_change: Callable[[], None],
        clock: Callable[[], float],
        random: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._wall = wall
        self._ailments: dict[str, Ailments] = {}
        self.host, self._clock, self._on_change, self._profiles = host, clock, on_change, profiles
        self._state = initial(host)
        self.journals = JournalFeed(s.unit for s in host.services)
        self.link_state = LinkState()
        self.link = HostLink(host, open_transport, launcher, self, clock, random)
        self.commands = Commands(self.link)
        self._host_asker = HostAsker(self.link.send)
        self._askers: Askers | None = None
        self._channel: ChannelAsker | None = None
        self._probers = {s.name: self._prober(s, engine) for s in host.services}

    def _engine_name(self, service: Service) -> str:
        profile = self._profiles.get(service.profile)
        return profile.engine if profile is not None else "generic"

    def _prober(self, service: Service, engine: Callable[[str], Engine]) -> HttpProber:
        return HttpProber(
            service,
            engine(self._engine_name(service)),
            lambda: self._askers,
            lambda: self.service(service.name),
            lambda http: self._put_http(service.name, http),
            lambda: [line.text for line in self.journals.read(service.unit, -1, LOOKED_AT)],
            self._clock,
        )

    async def run(self) -> None:
        """Keeps the host live until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.link.run())
            for prober in self._probers.values():
                group.create_task(prober.run())

    def service(self, name: str) -> ServiceSnapshot:
        """One slot now; KeyError for an unknown name."""
        for spec, service in zip(self.host.services, self._state.snapshot.services, strict=True):
            if spec.name == name:
                return service
        raise KeyError(name)

    def snapshot(self) -> HostSnapshot:
        """The host now."""
        return self._state.snapshot

    @property
    def notes(self) -> Mapping[str, str]:
        """Part of the watcher -> why it cannot be read."""
        return self._state.notes

    def events(self, unit: str, tx: str) -> list[Event] | None:
        """Events of that transaction in order; None when it is not the unit's newest one."""
        feed = self._state.feeds.get(unit)
        if feed is None or feed.tx != tx:
            return None
        return [feed.events[n] for n in sorted(feed.events)]

    def newest_tx(self, unit: str) -> str:
        """Id of the unit's newest transaction, '' before any."""
        feed = self._state.feeds.get(unit)
        return feed.tx if feed is not None else ""

    # what the link tells

    def watcher_config(self) -> Mapping[str, Any]:
        """As session.Sink."""
        slots = [
            {
                "service": s.name,
                "unit": s.unit,
                "port": s.port,
                "gpus": list(s.gpus),
                "engine": self._engine_name(s),
                "probe": False,
            }
            for s in self.host.services
        ]
        return {
            "v": 1,
            "services": slots,
            "gpu_interval": GPU_INTERVAL,
            "unit_interval": UNIT_INTERVAL,
            "http_interval": HTTP_INTERVAL,
        }

    def journal_request(self, again: bool) -> Mapping[str, Any]:
        """As session.Sink: resumes at the last entry that was seen."""
        return self.journals.request()

    def message(self, raw: Mapping[str, Any]) -> None:
        """As session.Sink."""
        if raw.get("kind") == "http" and "id" in raw:
            self._host_asker.answered(raw)
            return
        self._state = reduce(self._state, raw, self._clock())
        if raw.get("kind") in ("units", "ports", "tx"):
            self._wake()
        if raw.get("kind") in ("units", "gpus", "ranks", "xid", "tx", "releases"):
            self._diagnose()
        self._on_change()

    def journal(self, line: bytes) -> None:
        """As session.Sink. No change of the snapshot: the journal is read by sequence number."""
        self.journals.feed(line)

    def link_changed(self, state: LinkState) -> None:
        """As link.LinkSink."""
        up, was_up = (x.link in ("up", "unprivileged") for x in (state, self.link_state))
        self.link_state = state
        if up and not was_up and self.link.transport is not None:
            self._channel = ChannelAsker(self.link.transport.open_tcp)
            self._askers = Askers(self._channel, self._host_asker)
            self._wake()
        elif not up:
            self._channel = self._askers = None
        self._state = replace(
            self._state,
            snapshot=replace(
                self._state.snapshot,
                link=state.link,
                error=state.error,
                attempt=state.attempt,
                retry_at=state.retry_at,
                privileged=state.privileged,
                latency=state.latency,
            ),
        )
        self._on_change()

    def _wake(self) -> None:
        for prober in self._probers.values():
            prober.wake()

    def _put_http(self, name: str, http: HttpState) -> None:
        services = tuple(
            replace(old, http=http) if spec.name == name else old
            for spec, old in zip(self.host.services, self._state.snapshot.services, strict=True)
        )
        self._state = replace(self._state, snapshot=replace(self._state.snapshot, services=services))
        self._diagnose(name)
        self._on_change()

    def _diagnose(self, only: str = "") -> None:
        """What ails the services (or that one) now, into their snapshots."""
        state, services = self._state, []
        for spec, old in zip(self.host.services, state.snapshot.services, strict=True):
            if only in ("", spec.name):
                seen = Seen(
                    service=old,
                    gpus=[gpu for gpu in state.snapshot.gpus.gpus if gpu.index in spec.gpus],
                    ranks=state.ranks.get(spec.name, {}),
                    xids=state.xids,
                    now=self._clock(),
                    wall=self._wall(),
                )
                self._ailments[spec.name] = fold(self._ailments.get(spec.name, Ailments()), seen)
                finding = self._ailments[spec.name].finding
                old = old if finding == old.finding else replace(old, finding=finding)
            services.append(old)
        self._state = replace(state, snapshot=replace(state.snapshot, services=tuple(services)))
