"""Who listens on each service's port, for the watcher: cheap while nothing changes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ddtree_console.domain.snapshot import Listener, UnitState
from ddtree_console.hostside import sockets
from ddtree_console.hostside.roots import Roots
from ddtree_console.hostside.watch_config import Slot

# A port that is held, or that a stopped unit leaves free, is looked up anew this often, in seconds.
CALM = 5.0


@dataclass(frozen=True)
class Seen:
    """What was found, when, and for which process of the unit."""

    at: float
    unit: tuple[int, str]
    port: int
    listener: Listener
    holder: sockets.Holder | None


class PortWatch:
    """Keeps what was found as long as a glance confirms it."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._seen: dict[str, Seen] = {}

    def look(self, slots: tuple[Slot, ...], states: dict[str, UnitState]) -> dict[str, Listener]:
        """The listener of each service now."""
        tables = sockets.Tables(self._roots)
        found: dict[str, Listener] = {}
        for slot in slots:
            unit = states.get(slot.unit) or UnitState(slot.unit)
            seen = self._seen.get(slot.service)
            if seen is None or not self._holds(seen, slot, unit):
                listener, holder = sockets.look(self._roots, slot.port, unit.control_group, tables.of(unit.main_pid))
                seen = Seen(time.monotonic(), (unit.main_pid, unit.active), slot.port, listener, holder)
                self._seen[slot.service] = seen
            found[slot.service] = seen.listener
        return found

    @staticmethod
    def _holds(seen: Seen, slot: Slot, unit: UnitState) -> bool:
        if seen.port != slot.port or seen.unit != (unit.main_pid, unit.active):
            return False
        if time.monotonic() - seen.at >= CALM:
            return False
        if seen.holder is not None:
            return seen.holder.still()
        return seen.listener.state == "nobody" and unit.active in ("inactive", "failed")
