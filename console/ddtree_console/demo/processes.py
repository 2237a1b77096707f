"""Which processes belong to which unit, and the cgroup files that say so.

A real cgroup cannot be left. Here a process belongs to a unit because we started it, because its environment holds the
unit's INVOCATION_ID, or because its parent did when we first saw it; sessions and double forks do not shake it off.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

_TICK_USEC = 1_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Member:
    """One process of a unit. start: its start time in ticks, so that a reused pid is not taken for it."""

    unit: str
    start: int
    usec: int = 0


def stat_of(pid: int) -> tuple[int, int, int, str] | None:
    """(parent, start ticks, CPU microseconds with waited-for children left out, state), None when gone."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = raw[raw.rindex(b")") + 2 :].split()
    return int(fields[1]), int(fields[19]), (int(fields[11]) + int(fields[12])) * _TICK_USEC, fields[0].decode()


def environ_of(pid: int) -> bytes:
    """The environment a process was started with, b'' when it is gone or hidden."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


class Tracker:
    """Every process of one sandbox host's units."""

    def __init__(self, cgroup: Path, token: str) -> None:
        self._cgroup, self._token = cgroup, f"DDTREE_SANDBOX={token}".encode()
        self._members: dict[int, Member] = {}
        self._others: set[int] = set()
        self._invocations: dict[bytes, str] = {}
        self._spent: dict[str, int] = {}
        self._written: dict[str, tuple[str, str]] = {}

    def folder(self, unit: str) -> Path:
        """Where the unit's cgroup files lie."""
        return self._cgroup / "system.slice" / unit

    def open(self, unit: str, invocation: str) -> None:
        """A unit begins: its cgroup exists from now on, with its CPU time at 0."""
        self._invocations = {k: v for k, v in self._invocations.items() if v != unit}
        self._invocations[invocation.encode()] = unit
        self._spent[unit] = 0
        self._written.pop(unit, None)
        self.folder(unit).mkdir(parents=True, exist_ok=True)
        self.write(unit)

    def add(self, unit: str, pid: int) -> None:
        """A process that we started."""
        found = stat_of(pid)
        self._others.discard(pid)
        if found:
            self._members[pid] = Member(unit, found[1])
        self.write(unit)

    def close(self, unit: str) -> None:
        """The unit is down: its cgroup goes."""
        self._written.pop(unit, None)
        for name in ("cgroup.procs", "cpu.stat"):
            self.folder(unit).joinpath(name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder(unit).rmdir()

    def scan(self) -> None:
        """Looks at every new process of the machine, and at ours for CPU time and end."""
        with os.scandir("/proc") as entries:
            alive = {int(entry.name) for entry in entries if entry.name.isdigit()}
        self._others &= alive
        for pid in sorted(alive - self._others):
            member = self._members.get(pid)
            found = stat_of(pid)
            if member:
                if found is None or found[1] != member.start or found[3] in "ZX":
                    self._forget(pid)
                else:
                    member.usec = found[2]
            elif found:
                unit = self._unit_of_new(pid, found[0])
                if unit:
                    self._members[pid] = Member(unit, found[1], found[2])
                else:
                    self._others.add(pid)
        for pid in self._members.keys() - alive:
            self._forget(pid)

    def _unit_of_new(self, pid: int, parent: int) -> str:
        env = environ_of(pid)
        if self._token in env.split(b"\0"):
            for part in env.split(b"\0"):
                if part.startswith(b"INVOCATION_ID="):
                    return self._invocations.get(part[len(b"INVOCATION_ID=") :], "")
        member = self._members.get(parent)
        return member.unit if member else ""

    def _forget(self, pid: int) -> None:
        member = self._members.pop(pid)
        self._spent[member.unit] = self._spent.get(member.unit, 0) + member.usec

    def pids(self, unit: str) -> list[int]:
        """The unit's live processes, after a fresh look."""
        self.scan()
        return sorted(pid for pid, member in self._members.items() if member.unit == unit)

    def usec(self, unit: str) -> int:
        """CPU time of the unit since it was opened, as of the last scan."""
        return self._spent.get(unit, 0) + sum(m.usec for m in self._members.values() if m.unit == unit)

    def write(self, unit: str) -> None:
        """Brings cgroup.procs and cpu.stat up to date where they changed; a full disk under the root is not fatal."""
        procs = "".join(f"{pid}\n" for pid in sorted(p for p, m in self._members.items() if m.unit == unit))
        usec = self.usec(unit)
        stat = f"usage_usec {usec}\nuser_usec {usec}\nsystem_usec 0\n"
        if self._written.get(unit) == (procs, stat):
            return
        self._written[unit] = (procs, stat)
        for name, text in (("cgroup.procs", procs), ("cpu.stat", stat)):
            path = self.folder(unit) / name
            with contextlib.suppress(OSError):
                fresh = path.with_suffix(".new")
                fresh.write_text(text)
                fresh.rename(path)

    def kill(self, unit: str, number: int, only: int = 0) -> list[int]:
        """Signals every process of the unit (or `only` that one); the pids that it reached."""
        reached = []
        for pid in self.pids(unit):
            if only and pid != only:
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
                if number in (signal.SIGTERM, signal.SIGHUP):
                    os.kill(pid, signal.SIGCONT)
                reached.append(pid)
        return reached
