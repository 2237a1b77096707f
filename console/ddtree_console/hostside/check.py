"""The `check` command: is this host able to deploy these slots, now. Each finding with evidence and remedy."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from ddtree_console.domain.snapshot import Gpu, GpuReport, UnitState
from ddtree_console.hostside import check_unit, hello, procfs, request_json, sockets, systemctl
from ddtree_console.hostside.gpus import GpuReader
from ddtree_console.hostside.roots import Roots
from ddtree_console.hostside.watch_config import Slot, slot

LEAST_SYSTEMD = 249
# Memory of a GPU that drivers and idle contexts take; above it somebody uses the GPU.
IDLE_BYTES = 2 * 1024**3


@dataclass(frozen=True)
class Finding:
    """state: ok | warn | fail | unknown. service: '' for the host."""

    name: str
    state: str
    evidence: str
    remedy: str = ""
    service: str = ""


def host(roots: Roots) -> Iterator[Finding]:
    """What belongs to the host as a whole."""
    user = hello.user_name()
    if os.geteuid() == 0 or roots.path:
        yield Finding("privileged", "ok", user)
    else:
        yield Finding("privileged", "fail", f"{user}: read-only", f"allow `sudo -n` for {user} (NOPASSWD)")
    yield Finding("python", "ok", f"{platform.python_version()} ({sys.executable})")
    version = hello.systemd_version()
    number = int(version) if version.isdigit() else None
    if number is None:
        yield Finding("systemd", "fail", "systemctl --version says nothing", "is this a systemd host?")
    elif number < LEAST_SYSTEMD:
        yield Finding("systemd", "warn", f"{version}, older than {LEAST_SYSTEMD}", "update the host")
    else:
        yield Finding("systemd", "ok", version)


def port(roots: Roots, asked: Slot, unit: UnitState) -> Finding:
    """Free, or held by the slot's own unit."""
    found = sockets.listener(roots, asked.port, unit.control_group, unit.main_pid)
    held = f"{found.address}:{asked.port} pid {found.pid} {found.command}".rstrip()
    if found.state == "nobody":
        return Finding("port", "ok", f"{asked.port} is free", service=asked.service)
    if found.state == "ours":
        return Finding("port", "ok", f"{held}, of this unit", service=asked.service)
    if found.state == "unknown":
        return Finding("port", "unknown", f"{asked.port} is taken: {found.why}", "check as root", asked.service)
    whose = procfs.unit_of(roots, found.pid) if found.pid else ""
    who = f"{held} {f'of {whose}' if whose else found.why}".rstrip()
    return Finding("port", "fail", f"taken by {who}", f"stop {whose or 'it'}, or change the port", asked.service)


def gpu(asked: Slot, unit: UnitState, device: Gpu) -> tuple[str, str]:
    """(state, evidence) of one device: free, ours, or another's."""
    label = f"GPU {device.index} {device.name}".rstrip()
    if device.fault:
        return "fail", f"{label}: {device.fault}"
    others = [p for p in device.processes if p.unit != asked.unit and p.name]
    nameless = [p for p in device.processes if not p.name]
    if others:
        first = others[0]
        who = f"{first.name} (pid {first.pid}, {first.user}{f', {first.unit}' if first.unit else ''})"
        return "warn", f"{label}: {who} uses it"
    if nameless:
        state = "unknown" if unit.active in ("active", "activating") else "warn"
        return state, f"{label}: used by a process that this host's /proc does not know (a container?)"
    busy = not device.processes and device.used is not None and device.used > IDLE_BYTES and not device.unified
    if busy and device.used is not None:
        return "warn", f"{label}: {device.used / 1024**3:.1f} GiB used by nobody that the driver names"
    return "ok", f"{label}: {'ours' if device.processes else 'free'}"


def gpus(asked: Slot, unit: UnitState, report: GpuReport) -> Finding:
    """All devices of a slot in one finding; the worst decides."""
    if report.fault:
        return Finding("gpus", "fail", report.fault, "mend the driver", asked.service)
    by_index = {device.index: device for device in report.gpus}
    found = [
        gpu(asked, unit, by_index[i]) if i in by_index else ("fail", f"GPU {i}: there is none") for i in asked.gpus
    ]
    worst = max((state for state, _ in found), key=("ok", "unknown", "warn", "fail").index, default="ok")
    remedy = {"warn": "stop what uses it", "fail": "correct `gpus` in the fleet file, or mend the GPU"}.get(worst, "")
    return Finding("gpus", worst, "; ".join(text for _, text in found) or "none asked for", remedy, asked.service)


def service(roots: Roots, asked: Slot, unit: UnitState, report: GpuReport) -> Iterator[Finding]:
    """What belongs to one slot."""
    for name, look in (("unit", check_unit.unit), ("way back", check_unit.way_back)):
        state, evidence, remedy = look(roots, asked.unit, unit)
        yield Finding(name, state, evidence, remedy, asked.service)
    yield port(roots, asked, unit)
    if asked.gpus:
        yield gpus(asked, unit, report)


def findings(roots: Roots, slots: list[Slot]) -> Iterator[Finding]:
    """All of them, the host's first."""
    yield from host(roots)
    report = GpuReport()
    if any(s.gpus for s in slots):
        reader = GpuReader(roots)
        report = reader.read()
        reader.close()
    try:
        states = systemctl.show([s.unit for s in slots])
    except OSError as error:
        yield Finding("units", "fail", str(error), "see systemctl on the host")
        states = {}
    for asked in slots:
        yield from service(roots, asked, states.get(asked.unit) or UnitState(asked.unit), report)


def main(roots: Roots, args: list[str]) -> int:
    """A line a finding, as soon as it is known."""
    try:
        raw = request_json.read()
    except ValueError as error:
        return request_json.refuse(2, str(error), "correct the request")
    asked = [slot(s) for s in raw.get("services") or () if isinstance(s, dict)]
    for finding in findings(roots, [s for s in asked if s is not None]):
        sys.stdout.write(json.dumps(asdict(finding)) + "\n")
        sys.stdout.flush()
    return 0
