"""Schedulers of running services that died or were frozen, for the watcher: one small file a process and look."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddtree_console.domain.snapshot import UnitState
from ddtree_console.hostside import procfs, stalls
from ddtree_console.hostside.roots import Roots
from ddtree_console.hostside.watch_config import Slot

EVERY = 3.0
TITLE_S = 120.0
"""a process gives itself its title soon after its start: asked again for so long."""
FROZEN = "Tt"


@dataclass
class _Seen:
    """One invocation: its schedulers by process, and when it was looked at."""

    invocation: str = ""
    ranks: dict[int, str] = field(default_factory=dict)
    first: dict[int, float] = field(default_factory=dict)
    at: float = 0.0
    told: dict[str, Any] = field(default_factory=dict)


class RankWatch:
    """Titles are read once a process: a command line can be slow to read, a state never is."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._seen: dict[str, _Seen] = {}

    def look(self, slots: tuple[Slot, ...], states: dict[str, UnitState]) -> dict[str, dict[str, Any]]:
        """service -> {"alive", "dead", "frozen": ranks, sorted}; only services that run and have schedulers."""
        found = {}
        for slot in slots:
            unit = states.get(slot.unit)
            if unit is None or not unit.main_pid or not unit.control_group:
                self._seen.pop(slot.service, None)
                continue
            seen = self._seen.setdefault(slot.service, _Seen())
            if seen.invocation != unit.invocation:
                seen = self._seen[slot.service] = _Seen(unit.invocation)
            if time.monotonic() - seen.at >= EVERY:
                seen.at = time.monotonic()
                seen.told = self._one(seen, unit)
            if seen.told:
                found[slot.service] = seen.told
        return found

    def _one(self, seen: _Seen, unit: UnitState) -> dict[str, Any]:
        pids = set(procfs.cgroup_pids(self._roots, unit.control_group)[: stalls.MOST])
        now = time.monotonic()
        seen.first = {pid: seen.first.get(pid, now) for pid in pids}
        untitled = [pid for pid, at in seen.first.items() if pid not in seen.ranks and now - at < TITLE_S]
        for proc in stalls.processes(self._roots, untitled):
            if proc.rank and proc.rank != "?":
                seen.ranks[proc.pid] = proc.rank
        lives: dict[str, list[str]] = {"alive": [], "dead": [], "frozen": []}
        best: dict[str, str] = {}
        for pid, rank in seen.ranks.items():
            state = self._state(pid) if pid in pids else ""
            how = "dead" if state in ("", "Z", "X") else "frozen" if state in FROZEN else "alive"
            # a rank that was started again counts as what its newest process is
            best[rank] = how if rank not in best or how != "dead" else best[rank]
        for rank, how in best.items():
            lives[how].append(rank)
        return {name: sorted(ranks) for name, ranks in lives.items()} if best else {}

    def _state(self, pid: int) -> str:
        raw = (procfs.read(Path(self._roots.proc, str(pid), "stat")) or b"").rpartition(b") ")[2]
        return raw[:1].decode("ascii", "replace")
