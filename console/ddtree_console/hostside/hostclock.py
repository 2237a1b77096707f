"""Time as a transaction sees it, passed in so that tests can move it."""

from __future__ import annotations

import time

from ddtree_console.hostside import procfs


class Clock:
    """boottime: CLOCK_BOOTTIME seconds, for every duration and deadline. wall: unix seconds, for show only."""

    def boottime(self) -> float:
        """Seconds since boot, suspend included."""
        return procfs.boottime()

    def wall(self) -> float:
        """Unix seconds; may jump."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Waits that long."""
        time.sleep(seconds)


def stamp(wall: float) -> str:
    """YYYYMMDD-HHMMSS in UTC, the readable head of a transaction's id."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(wall))
