"""Events of a transaction on disk: one JSON line each. What the disk refuses goes to /run and to stdout instead."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddtree_console.domain import events as ev
from ddtree_console.hostside import durable, mark, procfs, releases
from ddtree_console.hostside.hostclock import Clock
from ddtree_console.hostside.roots import Roots


def disk_path(roots: Roots, unit: str, tx: str) -> Path:
    """Where the events of a transaction belong."""
    return roots.kept(unit) / "events" / f"{tx}.jsonl"


def spill_path(roots: Roots, unit: str, tx: str) -> Path:
    """Where they go while the disk is full or read-only; gone after a reboot."""
    return roots.live(unit) / "spill" / f"{tx}.jsonl"


def _complete_lines(path: Path) -> list[str]:
    text = durable.read_text(path)
    return text.split("\n")[:-1] if text else []


def _parsed(roots: Roots, unit: str, tx: str) -> dict[int, str]:
    found: dict[int, str] = {}
    for path in (spill_path(roots, unit, tx), disk_path(roots, unit, tx)):
        for line in _complete_lines(path):
            event = ev.parse(line)
            if event is not None and event.tx == tx:
                found[event.n] = line
    return found


def read_events(roots: Roots, unit: str, tx: str) -> Iterator[str]:
    """Every event line of a transaction in order, torn lines left out."""
    found = _parsed(roots, unit, tx)
    for n in sorted(found):
        yield found[n]


def events(roots: Roots, unit: str, tx: str) -> list[ev.Event]:
    """The same, parsed."""
    parsed = (ev.parse(line) for line in read_events(roots, unit, tx))
    return [event for event in parsed if event is not None]


def unlisted(roots: Roots, unit: str) -> list[str]:
    """Transactions with events that the history does not hold (yet), oldest file first."""
    listed = set(releases.history_txs(roots, unit))
    found: dict[str, int] = {}
    for folder in (disk_path(roots, unit, "x").parent, spill_path(roots, unit, "x").parent):
        for path in folder.glob("*.jsonl"):
            tx = path.name[: -len(".jsonl")]
            if tx not in listed and tx != "history":
                with contextlib.suppress(OSError):
                    found[tx] = path.stat().st_mtime_ns
    return sorted(found, key=lambda tx: found[tx])


def newest_tx(roots: Roots, unit: str) -> str | None:
    """The transaction that began last: as /run says; after a reboot the one that the history lacks, else its last."""
    tx = mark.read(roots, unit).tx
    if tx:
        return tx
    candidates = unlisted(roots, unit) or releases.history_txs(roots, unit)
    return candidates[-1] if candidates else None


class Follower:
    """Lines of one transaction as they come: poll() gives each event once, in order of arrival."""

    def __init__(self, roots: Roots, unit: str, tx: str) -> None:
        self._paths = (disk_path(roots, unit, tx), spill_path(roots, unit, tx))
        self._at = [0, 0]
        self._seen: set[int] = set()

    def poll(self) -> list[str]:
        """New complete lines since the last call; [] when there are none. Never raises."""
        fresh: list[tuple[int, str]] = []
        for i, path in enumerate(self._paths):
            try:
                with path.open("rb") as file:
                    file.seek(self._at[i])
                    data = file.read()
            except OSError:
                continue
            whole, newline, _ = data.rpartition(b"\n")
            self._at[i] += len(whole) + len(newline)
            for raw in whole.split(b"\n"):
                line = raw.decode("utf-8", "surrogateescape")
                event = ev.parse(line)
                if event is not None and event.n not in self._seen:
                    self._seen.add(event.n)
                    fresh.append((event.n, line))
        return [line for _, line in sorted(fresh)]


class EventLog:
    """Writes events of one transaction. A write that fails never raises: the line stays queued, spilled and printed."""

    def __init__(self, roots: Roots, unit: str, tx: str, clock: Clock) -> None:
        self.tx = tx
        self._roots, self._unit, self._clock = roots, unit, clock
        self._n = max(_parsed(roots, unit, tx), default=-1) + 1
        self._boot = procfs.boot_id(roots)
        self._waiting: list[str] = []

    def emit(self, kind: str, **data: Any) -> ev.Event:
        """One event, written and synced where the disk lets us."""
        event = ev.Event(self.tx, self._n, self._boot, self._clock.boottime(), self._clock.wall(), kind, data)
        self._n += 1
        self._waiting.append(event.line())
        try:
            while self._waiting:
                durable.append_line(disk_path(self._roots, self._unit, self.tx), self._waiting[0])
                self._waiting.pop(0)
        except OSError as error:
            self._spill(self._waiting[-1], error)
        return event

    def _spill(self, line: str, error: OSError) -> None:
        with contextlib.suppress(OSError):
            durable.append_line(spill_path(self._roots, self._unit, self.tx), line)
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.write(f"event not on disk ({error.strerror}): {line}\n")
            sys.stdout.flush()
