"""The GPUs of a slot: there, healthy, and free or ours."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from ddtree_console.domain.snapshot import Gpu, GpuProcess, GpuReport, UnitState
from ddtree_console.hostside.check_finding import Finding
from ddtree_console.hostside.watch_config import Slot

# Memory of a GPU that drivers and idle contexts take; above it somebody uses the GPU.
IDLE_BYTES = 2 * 1024**3
GIB = 1024**3
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)")
# Xids that tell of the device or its driver, from NVIDIA's list; others (13, 31, 43, 45 ..) are a program's own fault.
XIDS = {
    48: "double-bit memory error", 62: "the GPU's own controller stopped", 64: "memory rows could not be remapped",
    74: "NVLink error", 79: "it fell off the bus", 92: "many single-bit memory errors", 94: "contained memory error",
    95: "uncontained memory error", 109: "context switch timed out", 119: "GSP does not answer",
    120: "GSP error", 140: "unrecovered memory error", 143: "GPU could not be initialised",
}  # fmt: skip


def who(process: GpuProcess) -> str:
    """Name, pid, user, unit and memory of a process on a GPU."""
    unit = f", {process.unit}" if process.unit else ""
    used = f", {process.used / GIB:.1f} GiB" if process.used is not None else ""
    return f"{process.name} (pid {process.pid}, {process.user}{unit}{used})"


def gpu(asked: Slot, unit: UnitState, device: Gpu, sharing: Collection[str] = ()) -> tuple[str, str]:
    """(state, evidence) of one device: free, ours, or another's. sharing: units of slots that share it by intent."""
    label = f"GPU {device.index} {device.name}".rstrip()
    if device.fault:
        return "fail", f"{label}: {device.fault}"
    ours = {asked.unit, *sharing}
    others = [p for p in device.processes if p.unit not in ours and p.name]
    nameless = [p for p in device.processes if not p.name]
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        return "fail", f"{label}: {who(others[0])}{more} uses it"
    if nameless:
        state = "unknown" if unit.active in ("active", "activating") else "warn"
        return state, f"{label}: used by a process that this host's /proc does not know (a container?)"
    busy = not device.processes and device.used is not None and device.used > IDLE_BYTES and not device.unified
    if busy and device.used is not None:
        return "warn", f"{label}: {device.used / GIB:.1f} GiB used by nobody that the driver names"
    if device.ecc_errors:
        return "warn", f"{label}: {device.ecc_errors} uncorrected memory errors since the driver was loaded"
    if device.throttle:
        return "warn", f"{label}: slowed down: {', '.join(device.throttle)}"
    mine = any(p.unit == asked.unit for p in device.processes)
    return "ok", f"{label}: {'ours' if mine else 'shared' if device.processes else 'free'}"


def gpus(asked: Slot, unit: UnitState, report: GpuReport, sharing: Collection[str] = ()) -> Finding:
    """All devices of a slot in one finding; the worst decides."""
    if report.fault:
        return Finding("gpus", "fail", report.fault, "mend the driver", asked.service)
    by_index = {device.index: device for device in report.gpus}
    found = [
        gpu(asked, unit, by_index[i], sharing) if i in by_index else ("fail", f"GPU {i}: there is none")
        for i in asked.gpus
    ]
    worst = max((state for state, _ in found), key=("ok", "unknown", "warn", "fail").index, default="ok")
    taken = any(text.endswith("uses it") for _, text in found)
    remedy = ""
    if worst == "fail":
        remedy = "stop what uses it, or give the slot other GPUs" if taken else "correct `gpus`, or mend the GPU"
    elif worst == "warn":
        remedy = "look at the GPU before you stop what runs"
    return Finding("gpus", worst, "; ".join(text for _, text in found) or "none asked for", remedy, asked.service)


def kernel_log(path: str = "/dev/kmsg", most: int = 20_000) -> list[str]:
    """Lines of the kernel's ring buffer, or of a file; OSError where it is closed to us."""
    lines: list[str] = []
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while len(lines) < most:
            try:
                record = os.read(fd, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:  # overwritten while we read: the next one is there
                continue
            if not record:
                break
            lines += record.decode("utf-8", "replace").splitlines()
    finally:
        os.close(fd)
    return lines


def _bus(text: str) -> str:
    """A PCI address as it compares: 0000:41:00, domain in four digits and no function."""
    parts = text.lower().split(".")[0].split(":")
    return ":".join([parts[0][-4:].rjust(4, "0"), *parts[1:3]]) if len(parts) >= 3 else text.lower()


def xids(lines: Iterable[str], devices: Sequence[Gpu]) -> list[str]:
    """Device errors since the boot, one text an error and GPU; of these devices only where addresses are known."""
    known = {_bus(device.pci): device.index for device in devices if device.pci}
    found: dict[tuple[str, int], int] = {}
    for line in lines:
        match = _XID.search(line)
        if match and int(match[2]) in XIDS:
            key = (_bus(match[1]), int(match[2]))
            found[key] = found.get(key, 0) + 1
    said = []
    for (bus, number), times in found.items():
        if known and bus not in known:
            continue
        which = f"GPU {known[bus]}" if bus in known else bus
        said.append(f"{which}: Xid {number}, {XIDS[number]}{f' ({times} times)' if times > 1 else ''}")
    return said


def health(asked: Slot, report: GpuReport, log: str = "/dev/kmsg") -> Finding:
    """Xids of the slot's GPUs in this boot's kernel log."""
    mine = [device for device in report.gpus if device.index in asked.gpus]
    if not Path(log).exists():
        return Finding("gpu errors", "unknown", f"not known, because there is no {log}", "", asked.service)
    try:
        said = xids(kernel_log(log), mine)
    except OSError as error:
        return Finding(
            "gpu errors", "unknown", f"not known, because {log}: {error.strerror}", "check as root", asked.service
        )
    if said:
        remedy = "look whether the GPU still works (nvidia-smi -q); a reset or reboot clears most"
        return Finding("gpu errors", "warn", "; ".join(said[:3]), remedy, asked.service)
    return Finding("gpu errors", "ok", "no Xid in the kernel log since the boot", "", asked.service)
