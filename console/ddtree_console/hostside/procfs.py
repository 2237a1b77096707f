"""What /proc and the cgroup tree tell of processes; all cheap, all through the roots."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from ddtree_console.hostside.roots import Roots


def read(path: str | Path) -> bytes | None:
    """The whole file, or None where it cannot be read (gone, or not ours to see)."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


def cgroup_dir(roots: Roots, control_group: str) -> Path | None:
    """The folder of a ControlGroup= in a pure cgroup2 tree, else in systemd's own hierarchy of a hybrid or v1 tree."""
    inside = control_group.strip("/")
    if not inside:
        return None
    for below in ("", "unified", "systemd"):
        folder = Path(roots.cgroup, below, inside)
        if (folder / "cgroup.procs").exists():
            return folder
    return None


def cgroup_pids(roots: Roots, control_group: str) -> list[int]:
    """Every pid of the cgroup and of those below it, sorted; [] when it is empty or gone."""
    top = cgroup_dir(roots, control_group)
    if top is None:
        return []
    pids: set[int] = set()
    for folder, _, files in os.walk(top):
        if "cgroup.procs" in files:
            raw = read(Path(folder, "cgroup.procs")) or b""
            pids.update(int(x) for x in raw.split() if x.isdigit())
    return sorted(pids - {0})


def cpu_usec(roots: Roots, control_group: str) -> int | None:
    """CPU time used by the cgroup in microseconds, None when there is no such figure."""
    top = cgroup_dir(roots, control_group)
    for line in (read(top / "cpu.stat") or b"").splitlines() if top else ():
        key, _, value = line.partition(b" ")
        if key == b"usage_usec" and value.strip().isdigit():
            return int(value)
    inside = control_group.strip("/")
    for below in ("cpu,cpuacct", "cpuacct", "cpuacct,cpu"):
        usage = (read(Path(roots.cgroup, below, inside, "cpuacct.usage")) or b"").strip() if inside else b""
        if usage.isdigit():
            return int(usage) // 1000
    return None


def read_bytes(roots: Roots, pids: Iterable[int]) -> int:
    """Bytes those processes read so far: read calls plus page-ins of mapped files. Idle event loops add a few."""
    total = 0
    for pid in pids:
        for line in (read(Path(roots.proc, str(pid), "io")) or b"").splitlines():
            key, _, value = line.partition(b":")
            if key in (b"rchar", b"read_bytes") and value.strip().isdigit():
                total += int(value)
    return total


def boot_id(roots: Roots) -> str:
    """This boot's id, '' where it cannot be read."""
    return (read(roots.boot_id) or b"").decode("ascii", "replace").strip()


def boottime() -> float:
    """CLOCK_BOOTTIME in seconds: it also runs in suspend and does not jump with the wall clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def cmdline(roots: Roots, pid: int) -> list[str]:
    """argv of a process, [] when it is gone or hidden."""
    raw = read(Path(roots.proc, str(pid), "cmdline")) or b""
    parts = raw.split(b"\0")
    if parts and not parts[-1]:
        parts.pop()
    return [part.decode("utf-8", "surrogateescape") for part in parts]


def comm(roots: Roots, pid: int) -> str:
    """The short name of a process, '' when it is gone."""
    return (read(Path(roots.proc, str(pid), "comm")) or b"").decode("utf-8", "replace").rstrip("\n")


def uid(roots: Roots, pid: int) -> int | None:
    """The real uid of a process, None when it is gone."""
    for line in (read(Path(roots.proc, str(pid), "status")) or b"").splitlines():
        if line.startswith(b"Uid:"):
            fields = line.split()
            return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else None
    return None


def unit_of(roots: Roots, pid: int) -> str:
    """The systemd unit that a process belongs to, from its cgroup; '' when there is none."""
    if roots.path:
        # Where the roots are moved, /proc names a cgroup of the machine around us.
        for procs in Path(roots.cgroup).glob("*.slice/*/cgroup.procs"):
            if str(pid).encode() in (read(procs) or b"").split():
                return procs.parent.name
        return ""
    for line in (read(Path(roots.proc, str(pid), "cgroup")) or b"").splitlines():
        fields = line.split(b":", 2)
        if len(fields) == 3 and fields[1] in (b"", b"name=systemd"):
            for part in reversed(fields[2].decode("utf-8", "replace").split("/")):
                if part.endswith((".service", ".scope")):
                    return part
    return ""
