"""Watcher messages folded into a host's state: pure, never raises on what a host sends."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ddtree_console.domain import events as ev
from ddtree_console.domain.snapshot import (
    Drift,
    GpuReport,
    HostSnapshot,
    HttpState,
    Listener,
    ReleaseState,
    ServiceSnapshot,
    UnitState,
)
from ddtree_console.domain.spec import Host, Service
from ddtree_console.domain.txview import TxView, fold, fold_all
from ddtree_console.services.wire import build, mapping


@dataclass(frozen=True)
class Feed:
    """Events of a unit's newest transaction by their number, and what they fold to.

    ended: ids of transactions seen before this one, so that a straggler cannot take the slot back.
    """

    tx: str = ""
    events: Mapping[int, ev.Event] = field(default_factory=dict)
    last: int = -1
    view: TxView | None = None
    drift: tuple[Drift, ...] = ()
    ended: frozenset[str] = frozenset()


def _drift(drift: tuple[Drift, ...], event: ev.Event) -> tuple[Drift, ...]:
    """Drift of the attempt that serves: a going back starts a new list."""
    if event.kind in (ev.BACK, ev.BEGIN):
        return ()
    if event.kind != ev.DRIFT:
        return drift
    return (*drift, build(Drift, event.data, flag=str(event.data.get("flag", "?"))))


def add_event(feed: Feed, event: ev.Event) -> Feed:
    """The feed after one more event: repeats (a reconnect sends all again) change nothing, a late one is sorted in."""
    if event.tx in feed.ended or (event.tx == feed.tx and event.n in feed.events):
        return feed
    if event.tx != feed.tx:
        feed = Feed(tx=event.tx, ended=feed.ended | {feed.tx} if feed.tx else feed.ended)
    if event.n > feed.last:
        events, view = {**feed.events, event.n: event}, fold(feed.view, event)
        return replace(feed, events=events, last=event.n, view=view, drift=_drift(feed.drift, event))
    events = {**feed.events, event.n: event}
    ordered = [events[n] for n in sorted(events)]
    drift: tuple[Drift, ...] = ()
    for one in ordered:
        drift = _drift(drift, one)
    return replace(feed, events=events, view=fold_all(ordered), drift=drift)


@dataclass(frozen=True)
class HostState:
    """A host's snapshot and the event feeds behind it."""

    host: Host
    snapshot: HostSnapshot
    feeds: Mapping[str, Feed] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    """part of the watcher -> its last error."""
    ranks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """service -> its schedulers by how they are: alive, dead, frozen."""
    xids: tuple[Mapping[str, Any], ...] = ()
    """what the NVIDIA driver reported in this boot, oldest first."""


def initial(host: Host) -> HostState:
    """Before anything was heard."""
    services = tuple(ServiceSnapshot(key=s.key) for s in host.services)
    return HostState(host, HostSnapshot(name=host.name, services=services))


def _each(state: HostState, **fields: Callable[[Service, ServiceSnapshot], Any]) -> HostState:
    """Services with fields replaced where the function of that field gives a value other than None."""
    services = []
    for spec, old in zip(state.host.services, state.snapshot.services, strict=True):
        found = {name: value for name, get in fields.items() if (value := get(spec, old)) is not None}
        services.append(replace(old, **found) if found else old)
    return replace(state, snapshot=replace(state.snapshot, services=tuple(services)))


def _lock(raw: Any) -> str:
    held = mapping(raw)
    if not held:
        return ""
    who, origin, why, since = (str(held.get(k) or "") for k in ("who", "from", "why", "since"))
    words = (who or "someone", origin and f"from {origin}", since and f"since {since}", why and f"({why})")
    return " ".join(x for x in words if x)


def _units(state: HostState, message: Mapping[str, Any]) -> HostState:
    units = mapping(message.get("units"))

    def unit(spec: Service, _old: ServiceSnapshot) -> UnitState | None:
        raw = units.get(spec.unit)
        return build(UnitState, raw, unit=spec.unit) if isinstance(raw, dict) else None

    def http(spec: Service, old: ServiceSnapshot) -> HttpState | None:
        """What an earlier process answered says nothing about this one."""
        raw = mapping(units.get(spec.unit))
        gone = raw and old.unit and raw.get("invocation", old.unit.invocation) != old.unit.invocation
        return HttpState() if gone or raw.get("active") in ("inactive", "failed") else None

    return _each(state, unit=unit, http=http)


def _tx(state: HostState, message: Mapping[str, Any]) -> HostState:
    unit, raw = message.get("unit"), message.get("event")
    event = ev.parse(json.dumps(raw)) if isinstance(raw, dict) else None
    if event is None or not isinstance(unit, str):
        return state
    feed = add_event(state.feeds.get(unit, Feed()), event)
    state = replace(state, feeds={**state.feeds, unit: feed})
    return _each(
        state,
        tx=lambda spec, _: feed.view if spec.unit == unit else None,
        drift=lambda spec, _: feed.drift if spec.unit == unit else None,
    )


def _hello(state: HostState, message: Mapping[str, Any]) -> HostState:
    python, systemd, boot = (str(message.get(k) or "") for k in ("python", "systemd", "boot"))
    return replace(state, snapshot=replace(state.snapshot, python=python, systemd=systemd, boot=boot))


def _gpus(state: HostState, message: Mapping[str, Any]) -> HostState:
    return replace(state, snapshot=replace(state.snapshot, gpus=build(GpuReport, message)))


def _ports(state: HostState, message: Mapping[str, Any]) -> HostState:
    ports = mapping(message.get("ports"))
    return _each(state, listener=lambda s, _: build(Listener, x) if (x := mapping(ports.get(s.name))) else None)


def _locks(state: HostState, message: Mapping[str, Any]) -> HostState:
    locks = mapping(message.get("locks"))
    return _each(state, lock=lambda s, _: _lock(locks[s.unit]) if s.unit in locks else None)


def _releases(state: HostState, message: Mapping[str, Any]) -> HostState:
    kept = mapping(message.get("releases"))
    return _each(state, release=lambda s, _: build(ReleaseState, x) if (x := mapping(kept.get(s.unit))) else None)


def _http(state: HostState, message: Mapping[str, Any]) -> HostState:
    answer = build(HttpState, message)
    return _each(
        state, http=lambda s, old: replace(answer, token=old.http.token) if s.name == message.get("service") else None
    )


def _error(state: HostState, message: Mapping[str, Any]) -> HostState:
    return replace(state, notes={**state.notes, str(message.get("part", "?")): str(message.get("text", ""))})


def _ranks(state: HostState, message: Mapping[str, Any]) -> HostState:
    found = mapping(message.get("ranks"))
    return replace(state, ranks={str(name): mapping(value) for name, value in found.items()})


def _xid(state: HostState, message: Mapping[str, Any]) -> HostState:
    raw = message.get("xid")
    return replace(state, xids=tuple(x for x in raw if isinstance(x, dict)) if isinstance(raw, list) else ())


KINDS: Mapping[str, Callable[[HostState, Mapping[str, Any]], HostState]] = {
    "hello": _hello,
    "units": _units,
    "gpus": _gpus,
    "ports": _ports,
    "locks": _locks,
    "releases": _releases,
    "http": _http,
    "tx": _tx,
    "error": _error,
    "ranks": _ranks,
    "xid": _xid,
}


def reduce(state: HostState, message: Mapping[str, Any], at: float) -> HostState:
    """The state after one watcher message; `at` is the console's monotonic time. Unknown kinds only count as life.

    The watcher reports changes, so any word from it says that what it reported before still holds: all ages restart.
    """
    kind = message.get("kind")
    step = KINDS.get(kind) if isinstance(kind, str) else None
    if step is not None:
        state = step(state, message)
    services = tuple(replace(s, at=at) if s.unit is not None else s for s in state.snapshot.services)
    return replace(state, snapshot=replace(state.snapshot, services=services, at=at))
