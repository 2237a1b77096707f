"""Follows the newest transaction of each unit, and notices cheaply when kept files changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddtree_console.domain import events as ev
from ddtree_console.hostside import eventlog
from ddtree_console.hostside.roots import Roots

Signature = tuple[tuple[int, int, int], ...]
GONE = (0, 0, 0)


def signature(paths: list[Path]) -> Signature:
    """What changes when one of those files or folders does: inode, size, time."""
    found = []
    for path in paths:
        try:
            stat = path.stat()
            found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
        except OSError:
            found.append(GONE)
    return tuple(found)


def release_paths(roots: Roots, unit: str) -> list[Path]:
    """What a slot's release state is read from, where a change shows."""
    kept, committed, trial = roots.kept(unit), roots.committed(unit), roots.trial(unit)
    folders = [Path(f"{committed}.d"), Path(f"{trial}.d"), Path(roots.run, "systemd/system", f"{unit}.d")]
    files = [kept / "state.json", kept / "releases", kept / "way_back", kept / "way_back" / "profile.json"]
    return [*files, committed, trial, roots.live(unit), *folders]


class TxFollower:
    """New event lines of one unit's newest transaction, each once."""

    def __init__(self, roots: Roots, unit: str) -> None:
        self._roots, self._unit = roots, unit
        self._follower: eventlog.Follower | None = None
        self._tx: str | None = None
        self._folders = [roots.kept(unit) / "events", roots.live(unit), roots.live(unit) / "spill"]
        self._files: list[Path] = []
        self._folders_seen: Signature = ()
        self._files_seen: Signature = ()
        self.looked = False
        """whether it was polled."""
        self.running = False
        """whether the last event seen was not yet the outcome."""

    def poll(self) -> Iterator[dict[str, Any]]:
        """New events, oldest first. Three `stat` calls when nothing happened."""
        self.looked = True
        folders = signature(self._folders)
        if folders != self._folders_seen:
            self._folders_seen = folders
            newest = eventlog.newest_tx(self._roots, self._unit)
            if newest != self._tx:
                yield from self._read()
                self._begin(newest)
        files = signature(self._files)
        if files != self._files_seen:
            self._files_seen = files
            yield from self._read()

    def _begin(self, tx: str | None) -> None:
        self._tx, self._files_seen, self._follower, self._files = tx, (), None, []
        if tx is not None:
            self._follower = eventlog.Follower(self._roots, self._unit, tx)
            paths = (eventlog.disk_path, eventlog.spill_path)
            self._files = [path(self._roots, self._unit, tx) for path in paths]

    def _read(self) -> Iterator[dict[str, Any]]:
        for line in self._follower.poll() if self._follower else ():
            event = json.loads(line)
            self.running = event.get("kind") != ev.OUTCOME
            yield event


class HeldOutcomes:
    """Outcomes (and what follows them) kept back until the units' states are at least as new as they are.

    A transaction that had ended before the watch began is told whole and before its unit's first state: told in
    part it would look like one that runs, and a reader would wait for it, or ask it to go back.
    """

    def __init__(self) -> None:
        self.asked = 0
        """how often the states were asked for."""
        self._held: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        self._ended: set[str] = set()

    @property
    def waiting(self) -> bool:
        """Whether an answer is waited for."""
        return bool(self._held)

    def holds(self, unit: str, event: dict[str, Any]) -> bool:
        """Takes an outcome, or an event behind one; False: send it now."""
        if unit in self._held:
            self._held[unit][1].append(event)
            return True
        if event.get("kind") == ev.OUTCOME:
            self._held[unit] = (self.asked, [event])
            return True
        return False

    def holds_all(self, unit: str, events: list[dict[str, Any]]) -> bool:
        """Takes what a unit's first look brought, if it has ended; False: send it now."""
        if unit in self._held or not any(e.get("kind") == ev.OUTCOME for e in events):
            return False
        self._held[unit] = (self.asked, list(events))
        self._ended.add(unit)
        return True

    def ended(self) -> list[tuple[str, dict[str, Any]]]:
        """Transactions that had ended at the first look; their units' states come next."""
        units, self._ended = self._ended & self._held.keys(), set()
        return self._release(sorted(units))

    def answered(self) -> list[tuple[str, dict[str, Any]]]:
        """The newest question is answered: what was held before it was asked."""
        return self._release([unit for unit, (asked, _) in self._held.items() if asked < self.asked])

    def all(self) -> list[tuple[str, dict[str, Any]]]:
        """systemd does not answer: everything, since late is worse than unordered."""
        return self._release(list(self._held))

    def _release(self, units: list[str]) -> list[tuple[str, dict[str, Any]]]:
        return [(unit, event) for unit in units for event in self._held.pop(unit)[1]]
