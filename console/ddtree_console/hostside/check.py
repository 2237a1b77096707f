"""The `check` command: is this host able to deploy these slots, now. Each finding with evidence and remedy.

Parts that take time run beside each other, each in a child with one deadline: the answer is there within three seconds,
and a part that hangs says so without holding up the rest.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from ddtree_console.domain.snapshot import GpuReport, UnitState
from ddtree_console.hostside import (
    check_cuda,
    check_env,
    check_fallback,
    check_gpu,
    check_unit,
    env_cuda,
    env_launch,
    env_libs,
    hello,
    parallel,
    procfs,
    request_json,
    sockets,
    systemctl,
)
from ddtree_console.hostside.check_finding import Finding
from ddtree_console.hostside.gpus import GpuReader
from ddtree_console.hostside.roots import Roots
from ddtree_console.hostside.watch_config import Slot, slot

LEAST_SYSTEMD = 249
SECONDS = 2.5
"""of the whole check: what has no answer by then is not known."""


@dataclass(frozen=True)
class Asked:
    """A slot with what a deployment would start in it. unit_text '' looks at what is on the host alone."""

    slot: Slot
    unit_text: str = ""
    profile: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict)
    way_back: Mapping[str, Any] = field(default_factory=dict)
    sharing: tuple[str, ...] = ()


def asked(raw: Mapping[str, Any]) -> Asked | None:
    """A slot of the request; None where it is none."""
    one = slot(raw)
    if one is None:
        return None
    secrets, way_back, sharing = raw.get("secrets"), raw.get("way_back"), raw.get("sharing")
    return Asked(
        one,
        str(raw.get("unit_text") or ""),
        str(raw.get("profile") or ""),
        secrets if isinstance(secrets, dict) else {},
        way_back if isinstance(way_back, dict) else {},
        tuple(map(str, sharing)) if isinstance(sharing, list) else (),
    )


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


def port(roots: Roots, one: Slot, unit: UnitState) -> Finding:
    """Free, or held by the slot's own unit."""
    found = sockets.listener(roots, one.port, unit.control_group, unit.main_pid)
    held = f"{found.address}:{one.port} pid {found.pid} {found.command}".rstrip()
    if found.state == "nobody":
        return Finding("port", "ok", f"{one.port} is free")
    if found.state == "ours":
        return Finding("port", "ok", f"{held}, of this unit")
    if found.state == "unknown":
        return Finding("port", "unknown", f"{one.port} is taken: {found.why}", "check as root")
    whose = procfs.unit_of(roots, found.pid) if found.pid else ""
    who = f"{held} {f'of {whose}' if whose else found.why}".rstrip()
    return Finding("port", "fail", f"taken by {who}", f"stop {whose or 'it'}, or change the port")


def units(roots: Roots, one: Asked, unit: UnitState) -> Iterator[Finding]:
    """What systemd, the port and the kept releases say of one slot."""
    name = one.slot.unit
    if one.unit_text:
        yield Finding("unit", *check_unit.planned(roots, name, unit, one.unit_text, one.profile))
    else:
        yield Finding("unit", *check_unit.unit(roots, name, unit))
    yield Finding("way back", *check_fallback.way_back(roots, name, time.time(), one.way_back))
    yield port(roots, one.slot, unit)
    if one.secrets:
        yield Finding("secrets", *check_unit.secrets(roots, one.secrets))


def _units(roots: Roots, one: Asked, unit: UnitState) -> Iterator[dict[str, Any]]:
    for found in units(roots, one, unit):
        yield _row(found, one)


def gpus(roots: Roots, slots: list[Asked], states: Mapping[str, UnitState]) -> Iterator[dict[str, Any]]:
    """The GPUs of all slots, and what their environments are judged by."""
    reader = GpuReader(roots)
    report: GpuReport = reader.read()
    reader.close()
    for one in slots:
        if one.slot.gpus:
            unit = states.get(one.slot.unit) or UnitState(one.slot.unit)
            yield _row(check_gpu.gpus(one.slot, unit, report, one.sharing), one)
            if report.gpus and not roots.path:
                yield _row(check_gpu.health(one.slot, report), one)
    archs = {str(g.index): check_cuda.capability(g.capability, g.name) for g in report.gpus}
    yield {"facts": {"driver": report.driver, "cuda": report.cuda, "archs": archs, "report": asdict(report)}}


def _row(finding: Finding, one: Asked) -> dict[str, Any]:
    return {"finding": asdict(replace(finding, service=one.slot.service))}


def cuda_from(raw: Mapping[str, Any]) -> env_cuda.Cuda:
    """What `asdict` made of it, back again."""

    def missing(rows: Any) -> tuple[env_cuda.Missing, ...]:
        return tuple(env_cuda.Missing(**row) for row in rows)

    kernels = [
        env_cuda.Kernel(**{**k, "missing": missing(k["missing"]), "sass": tuple(k["sass"]), "ptx": tuple(k["ptx"])})
        for k in raw["kernels"]
    ]
    return env_cuda.Cuda(
        raw["torch"],
        raw["cuda"],
        missing(raw["torch_missing"]),
        tuple(kernels),
        tuple(env_libs.Found(**lib) for lib in raw["libraries"]),
        tuple(raw["problems"]),
    )


def findings(
    roots: Roots, slots: list[Asked], seconds: float = SECONDS, facts: dict[str, dict[str, Any]] | None = None
) -> Iterator[Finding]:
    """All of them, as soon as each is known; the host's first. facts: takes what they were found from."""
    facts = {} if facts is None else facts
    yield from host(roots)
    states: dict[str, UnitState] = {}
    try:
        states = systemctl.show([one.slot.unit for one in slots])
    except OSError as error:
        yield Finding("units", "fail", str(error), "see systemctl on the host")
    targets = {one.slot.service: env_launch.target(roots, one.unit_text) for one in slots if one.unit_text}
    jobs: dict[str, parallel.Work] = {}
    for one in slots:
        unit, service = states.get(one.slot.unit) or UnitState(one.slot.unit), one.slot.service
        jobs[f"unit {service}"] = partial(_units, roots, one, unit)
        if service in targets:
            jobs[f"environment {service}"] = partial(check_env.look, roots, targets[service], service)
    if any(one.slot.gpus for one in slots):
        jobs["gpus"] = partial(gpus, roots, slots, states)
    for job, item in parallel.run(jobs, seconds):
        kind, _, service = job.partition(" ")
        if "finding" in item:
            yield Finding(**item["finding"])
        elif "facts" in item:
            facts[job] = item["facts"]
        elif "problem" in item:
            yield Finding(kind, "unknown", f"not known, because {item['problem']}", "check again", service)
    yield from _cuda(slots, targets, facts)


def _cuda(
    slots: list[Asked], targets: Mapping[str, env_launch.Target], facts: Mapping[str, Mapping[str, Any]]
) -> Iterator[Finding]:
    """What needs both the environment and the GPUs to be judged."""
    gpu = facts.get("gpus") or {}
    archs = gpu.get("archs") or {}
    for one in slots:
        service = one.slot.service
        found = facts.get(f"environment {service}")
        if found is None:
            continue
        cuda = cuda_from(found["cuda"])
        if not one.slot.gpus and cuda.torch and not cuda.cuda:
            continue  # a slot without GPUs is served by torch's build for the CPU
        mine = [archs.get(str(index)) for index in one.slot.gpus]
        driver, supports = str(gpu.get("driver") or ""), str(gpu.get("cuda") or "")
        for finding in check_cuda.judge(cuda, targets[service].env, mine, driver, supports):
            yield replace(finding, service=service)


def main(roots: Roots, args: list[str]) -> int:
    """A line a finding, as soon as it is known."""
    try:
        raw = request_json.read()
    except ValueError as error:
        return request_json.refuse(2, str(error), "correct the request")
    found = [asked(s) for s in raw.get("services") or () if isinstance(s, dict)]
    limit = raw.get("seconds")
    seconds = min(30.0, max(0.5, float(limit))) if isinstance(limit, (int, float)) else SECONDS
    facts: dict[str, dict[str, Any]] = {}
    for finding in findings(roots, [one for one in found if one is not None], seconds, facts):
        sys.stdout.write(json.dumps(asdict(finding)) + "\n")
        sys.stdout.flush()
    if raw.get("facts") is True:
        sys.stdout.write(json.dumps({"facts": facts}) + "\n")
    return 0
