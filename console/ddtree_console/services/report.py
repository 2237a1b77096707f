"""The incident file of a transaction: everything somebody who was not there needs, gathered once, secrets masked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ddtree_console.domain.events import Event
from ddtree_console.domain.snapshot import HostSnapshot, ServiceSnapshot
from ddtree_console.domain.txview import Attempt, TxView, fold_all
from ddtree_console.services import follow, history, plans, report_text
from ddtree_console.services.api import HistoryEntry, JournalLine
from ddtree_console.services.console import LiveConsole
from ddtree_console.services.errors import HostError
from ddtree_console.services.wire import mapping, profile_of

LINES = 4000
"""log lines asked for of each start; what is printed is less."""
BUILD_S = 15.0
ATTEMPTS = 12

T = TypeVar("T")


@dataclass(frozen=True)
class Start:
    """One start inside the transaction. memory: (seconds since the transaction began, bytes on the slot's GPUs)."""

    attempt: Attempt
    log: Sequence[JournalLine] = ()
    memory: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True)
class Incident:
    """What was gathered. read: the host's `read` answer; unit: as systemd has it now; rendered: the unit of the profile
    that was on trial; versions: package -> version; missing: what could not be had,
    and why, one line each. made: wall clock of the report."""

    key: str
    host: HostSnapshot
    service: ServiceSnapshot
    view: TxView | None = None
    starts: tuple[Start, ...] = ()
    history: Sequence[HistoryEntry] = ()
    read: Mapping[str, Any] = field(default_factory=dict)
    profile: Mapping[str, Any] = field(default_factory=dict)
    unit: str = ""
    rendered: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    made: float = 0.0


class _Gather:
    """Asks for one part after another; a part that fails is named and costs nothing else."""

    def __init__(self) -> None:
        self.missing: list[str] = []

    async def part(self, name: str, work: Awaitable[T], default: T) -> T:
        """What the part gives, else the default."""
        try:
            return await work
        except HostError as error:
            self.missing.append(f"{name}: {error.cause}")
        except TimeoutError:
            self.missing.append(f"{name}: no answer in time")
        return default


def memory_of(events: Sequence[Event]) -> list[tuple[tuple[float, int], ...]]:
    """GPU memory over time, one series a start: progress events between one going back and the next."""
    series: list[list[tuple[float, int]]] = [[]]
    began = events[0].t if events else 0.0
    for event in events:
        if event.kind == "back":
            series.append([])
        gpu = event.data.get("gpu")
        if event.kind == "progress" and isinstance(gpu, int):
            series[-1].append((event.t - began, gpu))
    return [tuple(one) for one in series]


def kept_release(read: Mapping[str, Any], release: str) -> Mapping[str, Any]:
    """The kept release of that name in a `read` answer, {} where there is none."""
    rows = read.get("releases")
    return (
        next((mapping(r) for r in rows if mapping(r).get("release") == release), {}) if isinstance(rows, list) else {}
    )


async def gather(console: LiveConsole, key: str, tx: str = "", now: float | None = None) -> Incident:
    """Everything about that transaction ('' = the newest one). HostError(2) when there is no such transaction."""
    service = console.fleet.service(key)
    watch = console.monitor.hosts[service.host]
    commands, parts = watch.commands, _Gather()
    entries = await history.history(commands, service.unit, 200)
    newest = watch.newest_tx(service.unit) or (entries[0].tx if entries else "")
    wanted = tx or newest
    events = await follow.whole(commands, service.unit, wanted) if wanted else []
    if tx and not events:
        known = ", ".join(entry.tx for entry in entries[:5]) or "none"
        raise HostError(key, "report", f"no transaction {tx}", f"newest: {known}", 2)
    read = await parts.part("what is on disk", commands.call("read", {"unit": service.unit}), {})
    view = fold_all(events)
    attempts = view.attempts if view is not None else ()
    series, starts = memory_of(events), []
    for i, one in enumerate(attempts):
        log: Sequence[JournalLine] = ()
        if one.invocation:
            asked = history.logs(commands, service.unit, LINES, one.invocation)
            log = await parts.part(f"log of {one.target or 'a start'}", asked, ())
        starts.append(Start(one, log, series[i] if i < len(series) else ()))
    kept = kept_release(read, view.target if view is not None else str(read.get("committed") or ""))
    profile = mapping(kept.get("profile"))
    versions: Mapping[str, str] = {}
    rendered = ""
    if profile:
        launch = profile_of(profile, str(kept.get("profile_name")))
        try:
            rendered = plans.render(launch, service).text
        except HostError as error:
            parts.missing.append(f"unit of {kept.get('release')}: {error.cause}")
        found = await parts.part(
            "versions of the build",
            asyncio.wait_for(console.preflight(key, launch), BUILD_S),
            None,
        )
        versions = found.build.versions if found is not None else {}
    return Incident(
        key=key,
        host=watch.snapshot(),
        service=watch.service(service.name),
        view=view,
        starts=tuple(starts),
        history=entries[:ATTEMPTS],
        read=read,
        profile=profile,
        unit=str(read.get("text") or ""),
        rendered=rendered,
        versions=versions,
        missing=tuple(parts.missing),
        made=time.time() if now is None else now,
    )


async def report(console: LiveConsole, key: str, tx: str = "") -> str:
    """The incident file as Markdown; errors as gather."""
    return report_text.render(await gather(console, key, tx))
