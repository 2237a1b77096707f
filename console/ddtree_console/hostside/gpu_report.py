"""The NVML child's raw reading -> GpuReport: process owners, and host memory for unified-memory devices."""

from __future__ import annotations

import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddtree_console.domain.snapshot import Gpu, GpuProcess, GpuReport
from ddtree_console.hostside import procfs
from ddtree_console.hostside.roots import Roots

_users: dict[int, str] = {}


def user_name(uid: int | None) -> str:
    """The user's name, `uid N` where the host has none, '' for a process that is gone. Kept: a directory is slow."""
    if uid is None:
        return ""
    if uid not in _users:
        try:
            _users[uid] = pwd.getpwuid(uid).pw_name
        except KeyError:
            _users[uid] = f"uid {uid}"
    return _users[uid]


def process(roots: Roots, raw: Mapping[str, Any]) -> GpuProcess:
    """A process with its owner; where /proc does not know NVML's pid (containers), only pid and memory are known."""
    pid = int(raw["pid"])
    return GpuProcess(
        pid=pid,
        used=raw.get("used"),
        user=user_name(procfs.uid(roots, pid)),
        name=procfs.comm(roots, pid),
        unit=procfs.unit_of(roots, pid),
    )


def host_memory(roots: Roots) -> tuple[int, int] | None:
    """(total, available) bytes of this host."""
    found: dict[bytes, int] = {}
    for line in (procfs.read(Path(roots.proc, "meminfo")) or b"").splitlines():
        key, _, value = line.partition(b":")
        fields = value.split()
        if fields and fields[0].isdigit():
            found[key] = int(fields[0]) * 1024
    try:
        return found[b"MemTotal"], found[b"MemAvailable"]
    except KeyError:
        return None


def gpu(roots: Roots, raw: Mapping[str, Any]) -> Gpu:
    """One device."""
    total, used, free = raw.get("total"), raw.get("used"), raw.get("free")
    missing = dict(raw.get("missing") or {})
    if raw.get("unified"):
        memory = host_memory(roots)
        if memory:
            total, free = memory
            used = total - free
            missing.pop("memory", None)
    return Gpu(
        index=int(raw["index"]),
        name=str(raw.get("name") or ""),
        uuid=str(raw.get("uuid") or ""),
        total=total,
        used=used,
        free=free,
        util=raw.get("util"),
        temp=raw.get("temp"),
        power=_watts(raw.get("power")),
        power_limit=raw.get("power_limit"),
        processes=tuple(process(roots, p) for p in raw.get("processes") or ()),
        fault=raw.get("fault"),
        missing=missing,
        unified=bool(raw.get("unified")),
        throttle=tuple(raw.get("throttle") or ()),
        ecc_errors=raw.get("ecc_errors"),
        capability=str(raw.get("capability") or ""),
        pci=str(raw.get("pci") or ""),
    )


def _watts(value: float | None) -> float | None:
    """Whole watts: an idle GPU's tenths would be a change, and a message, at each reading."""
    return None if value is None else float(round(value))


def report(roots: Roots, raw: Mapping[str, Any]) -> GpuReport:
    """The whole report."""
    return GpuReport(
        source=str(raw.get("source", "none")),
        driver=str(raw.get("driver") or ""),
        gpus=tuple(gpu(roots, g) for g in raw.get("gpus") or ()),
        fault=raw.get("fault"),
        cuda=str(raw.get("cuda") or ""),
    )
