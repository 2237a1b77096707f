"""One flock a service and one a GPU, with who holds it inside. The kernel frees them when the holder dies."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddtree_console.hostside import durable
from ddtree_console.hostside.hostclock import Clock
from ddtree_console.hostside.roots import Roots

RETRY_S = 0.05


class Busy(Exception):
    """A lock is held. name: UNIT or gpu-N; holder: what is written in it (may be {})."""

    def __init__(self, name: str, holder: Mapping[str, Any]) -> None:
        super().__init__(f"{name} is locked by {describe(holder)}")
        self.name, self.holder = name, dict(holder)


def since(holder: Mapping[str, Any]) -> str:
    """Since when, by this host's clock and zone: 14:02:11 CEST; '' where nobody wrote it."""
    wall = holder.get("since")
    if not isinstance(wall, (int, float)) or isinstance(wall, bool) or not 0 < wall < 1e11:
        return ""
    return time.strftime("%H:%M:%S %Z", time.localtime(wall))


def describe(holder: Mapping[str, Any]) -> str:
    """Who, from where, why and since when, in one line."""
    who = str(holder.get("who") or "someone")
    origin = f" from {holder['from']}" if holder.get("from") else ""
    why = f": {holder['why']}" if holder.get("why") else ""
    began = f", since {since(holder)}" if since(holder) else ""
    return f"{who}{origin}{why}{began}"


def lock_names(unit: str, gpus: Sequence[int]) -> list[str]:
    """Names in the one order in which everybody takes them."""
    return [unit, *(f"gpu-{n}" for n in sorted(set(gpus)))]


class Held:
    """Locks taken; freed by release() or by the end of this process (children do not inherit them)."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def add(self, fd: int) -> None:
        """One more lock of ours."""
        self._fds.append(fd)

    def add_all(self, other: Held) -> None:
        """Takes over what another holds."""
        self._fds += other._fds
        other._fds = []

    def release(self) -> None:
        """Frees them all."""
        for fd in reversed(self._fds):
            os.close(fd)
        self._fds.clear()


def _take(path: Path, info: Mapping[str, Any]) -> int | None:
    durable.make_dir(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps({**info, "pid": os.getpid()}).encode() + b"\n", 0)
    return fd


def acquire(
    roots: Roots, unit: str, gpus: Sequence[int], info: Mapping[str, Any], clock: Clock, wait: float = 2.0
) -> Held:
    """All locks of a slot, in order. Busy after `wait` seconds; a reader's short look never counts as held."""
    held = Held()
    end = clock.boottime() + wait
    for name in lock_names(unit, gpus):
        path = roots.locks() / f"{name}.lock"
        fd = _take(path, info)
        while fd is None:
            if clock.boottime() >= end:
                held.release()
                raise Busy(name, durable.read_json(path))
            clock.sleep(RETRY_S)
            fd = _take(path, info)
        held.add(fd)
    return held


def holder(roots: Roots, name: str) -> dict[str, Any] | None:
    """What the holder of one lock (UNIT or gpu-N) wrote, None when it is free."""
    path = roots.locks() / f"{name}.lock"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return durable.read_json(path)
    finally:
        os.close(fd)
    return None


def holders(roots: Roots) -> dict[str, dict[str, Any] | None]:
    """Each lock that was ever taken since boot (UNIT or gpu-N): its holder, or None when free."""
    try:
        names = sorted(path.name[: -len(".lock")] for path in roots.locks().glob("*.lock"))
    except OSError:
        return {}
    return {name: holder(roots, name) for name in names}
