"""Room on the host for a start: memory, /dev/shm, disks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ddtree_console.hostside import gpu_report
from ddtree_console.hostside.check_finding import Finding
from ddtree_console.hostside.env_launch import Target
from ddtree_console.hostside.roots import Roots

GIB = 1 << 30
# An SGLang process takes 3 to 4 GiB of host memory while it imports and loads; there is one a GPU, and two beside them.
EACH, BESIDE = 3 * GIB, 4 * GIB
LEAST_SHM, LEAST_DISK, NO_DISK = GIB, GIB, 1 << 20


def ranks(about: Target) -> int:
    """Processes with a model: tensor parallel size."""
    for name in ("tp-size", "tp", "tensor-parallel-size"):
        value = about.flags.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 1


def memory(roots: Roots, about: Target) -> Finding:
    """Host memory that is available, and the unit's own limit."""
    found = gpu_report.host_memory(roots)
    if found is None:
        return Finding("host memory", "unknown", f"not known, because {roots.proc}/meminfo does not tell it")
    total, free = found
    needed = BESIDE + EACH * ranks(about)
    said = f"{free / GIB:.1f} of {total / GIB:.1f} GiB available"
    if about.memory_max is not None and about.memory_max < min(free, needed):
        why = f"MemoryMax of the unit is {about.memory_max / GIB:.1f} GiB; loading takes about {needed / GIB:.0f} GiB"
        return Finding("host memory", "warn", why, "raise MemoryMax, or the kernel kills a rank while it loads")
    if free < needed:
        why = f"{said}; loading takes about {needed / GIB:.0f} GiB"
        return Finding("host memory", "warn", why, "free memory first, or the kernel kills a rank while it loads")
    return Finding("host memory", "ok", said)


def shm(about: Target, path: str = "/dev/shm") -> Finding:
    """Shared memory, which the ranks of a tensor parallel server talk through."""
    many = ranks(about) > 1
    try:
        room = os.statvfs(path)
    except OSError as error:
        state = "fail" if many else "warn"
        return Finding("shared memory", state, f"{path}: {error.strerror}", f"mount a tmpfs on {path}")
    free = room.f_bavail * room.f_frsize
    if free < LEAST_SHM and many:
        why = f"{free / GIB:.2f} GiB free in {path}; {ranks(about)} ranks share it"
        return Finding("shared memory", "warn", why, f"mount -o remount,size=8G {path}")
    return Finding("shared memory", "ok", f"{free / GIB:.1f} GiB free in {path}")


def disks(roots: Roots, env: Mapping[str, str]) -> Finding:
    """Free space where releases are kept, where a trial lies, and where kernels are cached."""
    low: list[str] = []
    none = False
    seen: set[int] = set()
    shown: list[str] = []
    places = [roots.var, roots.run, roots.etc, env.get("TMPDIR") or "/tmp", env.get("HOME") or ""]
    for place in [p for p in places if p]:
        path = next((p for p in (Path(place), *Path(place).parents) if p.exists()), Path("/"))
        try:
            room, device = os.statvfs(path), path.stat().st_dev
        except OSError:
            continue
        if device in seen or not room.f_blocks:
            continue
        seen.add(device)
        free = room.f_bavail * room.f_frsize
        shown.append(f"{place} {free / GIB:.1f} GiB")
        if free < LEAST_DISK and free < room.f_blocks * room.f_frsize // 10:
            low.append(f"{free / (1 << 20):.0f} MiB free at {place}")
            none = none or (free < NO_DISK and place == roots.var)
    if low:
        return Finding("disk", "fail" if none else "warn", ", ".join(low), "make room")
    return Finding("disk", "ok", ", ".join(shown))


def check(roots: Roots, about: Target, env: Mapping[str, str]) -> Iterator[Finding]:
    """All of them."""
    yield memory(roots, about)
    yield shm(about)
    yield disks(roots, env)
