"""Facts about the processes of a start, for domain.stalls: read in a thread, since a hung mount can hang /proc too."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ddtree_console.domain import stalls
from ddtree_console.hostside import jit_locks, procfs
from ddtree_console.hostside.background import Background
from ddtree_console.hostside.roots import Roots

COMPILERS = frozenset(
    (
        *("nvcc", "cicc", "ptxas", "ninja", "cudafe++", "fatbinary", "nvlink", "hipcc"),
        *("cc1plus", "cc1", "g++", "gcc", "c++", "clang", "clang++", "ld", "lld"),
    )
)
EVERY_S, LOCKS_EVERY_S = 2.0, 5.0
MOST = 512
"""processes looked at."""
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


def rank_of(title: str) -> str:
    """The rank in a scheduler's title: '1' of `sglang::scheduler_TP1`, '0' of `sglang::scheduler`, '' of any other."""
    _, found, after = title.partition("scheduler")
    if not found or not title.startswith(("sglang", "scheduler")):
        return ""
    parts = [part for part in after.split()[0].split("_") if part] if after.strip("_ ") else []
    numbers = [part.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for part in parts]
    return ".".join(number for number in numbers if number.isdigit()) or "0"


def title_of(roots: Roots, pid: int, comm: str) -> str:
    """What the process calls itself: a word of its command line that names its part, else its short name."""
    words = procfs.cmdline(roots, pid)
    named = next((word for word in words if word.startswith("sglang::")), "")
    return named or comm


def processes(roots: Roots, pids: Iterable[int]) -> list[stalls.Proc]:
    """Those processes; one that ended meanwhile is left out."""
    found = []
    for pid in pids:
        head, _, rest = (procfs.read(Path(roots.proc, str(pid), "stat")) or b"").rpartition(b") ")
        if not rest:
            continue
        comm = head.partition(b"(")[2].decode("utf-8", "replace")
        title = title_of(roots, pid, comm)
        # a short name, cut at 15 characters, is all that a dead process still has
        rank = "?" if title == comm and comm.startswith("sglang::sched") else rank_of(title)
        found.append(stalls.Proc(pid, title, rest[:1].decode("ascii", "replace"), rank, comm in COMPILERS))
    return found


def weight_bytes(path: str) -> int:
    """Bytes of the weight files directly in a model's folder; 0 where it is no local folder."""
    total = 0
    try:
        for entry in os.scandir(path):
            if entry.name.endswith(WEIGHTS):
                total += entry.stat().st_size
    except OSError:
        return 0
    return total


class Reads:
    """Bytes read by a changing set of processes. A read from disk counts once, also where it is mapped."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}
        self.total = 0

    def add(self, roots: Roots, pids: Iterable[int]) -> int:
        """The total so far."""
        now: dict[int, tuple[int, int]] = {}
        for pid in pids:
            values = {b"rchar": 0, b"read_bytes": 0}
            for line in (procfs.read(Path(roots.proc, str(pid), "io")) or b"").splitlines():
                key, _, value = line.partition(b":")
                if key in values and value.strip().isdigit():
                    values[key] = int(value)
            now[pid] = (values[b"rchar"], values[b"read_bytes"])
            before = self._last.get(pid, now[pid])
            self.total += max(0, now[pid][0] - before[0], now[pid][1] - before[1])
        self._last = now
        return self.total


class Looks:
    """Asks for facts in the background; `take` gives the newest once."""

    def __init__(self, roots: Roots, model: str = "") -> None:
        self._roots, self._model = roots, model
        self._work = Background()
        self._reads = Reads()
        self._next = self._next_locks = 0.0
        self._locks: tuple[stalls.Lock, ...] = ()
        self.size = 0
        """bytes of the model's weights, once they were counted."""
        self._sized = not model

    def ask(self, now: float, control_group: str, main_pid: int, quiet: bool) -> None:
        """Starts a look when its time has come; locks are searched for only while it is quiet."""
        if self._work.busy or now < self._next or not control_group:
            return
        self._next = now + EVERY_S
        locks = quiet and now >= self._next_locks
        if locks:
            self._next_locks = now + LOCKS_EVERY_S
        self._work.start(lambda: self._look(now, control_group, main_pid, locks, quiet))

    def _look(self, now: float, group: str, main_pid: int, locks: bool, quiet: bool) -> stalls.Facts:
        if not self._sized:
            self._sized, self.size = True, weight_bytes(self._model)
        pids = procfs.cgroup_pids(self._roots, group)[:MOST]
        found = processes(self._roots, pids)
        if locks:
            self._locks = tuple(jit_locks.find(self._roots, main_pid or (pids[0] if pids else 0), pids))
        elif not quiet:
            self._locks = ()
        return stalls.Facts(now, tuple(found), self._reads.add(self._roots, pids), self._locks)

    def fileno(self) -> int:
        """Readable once a look ended."""
        return self._work.fileno()

    def take(self) -> stalls.Facts | None:
        """The facts of a look that ended, once."""
        done, result = self._work.poll()
        found: Any = result if done else None
        return found if isinstance(found, stalls.Facts) else None

    def close(self) -> None:
        """Frees what it holds."""
        self._work.close()
