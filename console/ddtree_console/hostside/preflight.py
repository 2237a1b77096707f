"""What must be so before a deploy stops anything: no hand edits, the port and the GPUs free or ours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ddtree_console.domain.plan import Plan
from ddtree_console.domain.snapshot import Gpu, GpuReport, UnitState
from ddtree_console.hostside import releases, sockets, tx_steps, unitctl
from ddtree_console.hostside.gpus import GpuReader
from ddtree_console.hostside.roots import Roots

FOREIGN_SHARE = 0.05
FOREIGN_LEAST = 1 << 30
"""bytes: where only memory can be compared, less than this (or 5 %) is a driver's own."""


@dataclass(frozen=True)
class Refusal:
    """Why the host will not: exit code, cause and next step, one line each."""

    code: int
    cause: str
    next_step: str


def edited(roots: Roots, plan: Plan) -> Refusal | None:
    """Edited by hand, unless overridden with a reason."""
    paths = releases.edited(roots, plan.unit)
    if not paths or plan.force:
        return None
    if not releases.load(roots, plan.unit).committed and roots.committed(plan.unit).exists():
        return Refusal(7, f"{paths[0]} exists and was never adopted", "adopt it, or deploy with --force and a reason")
    return Refusal(
        7, f"edited by hand since it was kept: {', '.join(paths)}", "adopt it, or deploy with --force and a reason"
    )


def port(roots: Roots, plan: Plan, unit: UnitState) -> Refusal | None:
    """The slot's port is free or ours."""
    now = sockets.listener(roots, plan.port, unit.control_group, unit.main_pid)
    if now.state != "foreign":
        return None
    who = f"pid {now.pid} ({now.command})" if now.pid else now.why
    return Refusal(7, f"port {plan.port} is held by {who}", "stop that process, or give the service another port")


def gpus(roots: Roots, plan: Plan, unit: UnitState) -> Refusal | None:
    """The slot's GPUs are free, ours, or held by a slot of this fleet that shares them."""
    if not plan.gpus:
        return None
    reader = GpuReader(roots)
    try:
        report = reader.read()
    finally:
        reader.close()
    sharing = any(not unitctl.down(unitctl.show(other)) for other in plan.shared_gpu_units)
    return judge_gpus(roots, plan, report, not unitctl.down(unit) or sharing)


def judge_gpus(roots: Roots, plan: Plan, report: GpuReport, ours_runs: bool) -> Refusal | None:
    """The judgement on a report. ours_runs: our unit, or one that shares the GPUs, is up."""
    for index in plan.gpus:
        gpu = next((gpu for gpu in report.gpus if gpu.index == index), None)
        if gpu is None:
            if report.gpus:
                return Refusal(7, f"this host has no GPU {index}", "correct gpus in the fleet file")
            continue
        if gpu.fault is not None:
            return Refusal(7, f"GPU {index}: {gpu.fault}", "look at the GPU (check) before you stop what runs")
        found = _foreign(roots, plan, gpu, ours_runs)
        if found:
            return Refusal(7, found, "end that process, or give the service other GPUs")
    return None


def _foreign(roots: Roots, plan: Plan, gpu: Gpu, ours_runs: bool) -> str:
    ours = {plan.unit, *plan.shared_gpu_units}
    real = [process for process in gpu.processes if Path(roots.proc, str(process.pid)).exists()]
    for process in real:
        if process.unit not in ours:
            owner = process.unit or process.user or "another owner"
            return f"GPU {gpu.index} is used by pid {process.pid} ({process.name or 'unnamed'}, {owner})"
    if real or ours_runs or gpu.used is None:
        return ""
    # A container: NVML's pids are of another namespace, or hidden. Only the memory can tell.
    limit = max(FOREIGN_LEAST, int((gpu.total or 0) * FOREIGN_SHARE))
    if gpu.used > limit:
        return f"GPU {gpu.index} has {gpu.used / 2**30:.1f} GiB in use and no service of this fleet runs on it"
    return ""


def unit_texts(roots: Roots, plan: Plan) -> Refusal | None:
    """The new unit and the way back, as systemd reads them, with the secrets they name."""
    for what, candidate in (("", plan.new), ("way back: ", plan.way_back)):
        if candidate is None:
            continue
        try:
            tx_steps.check_secrets(roots, candidate)
            tx_steps.check_unit(roots, plan.unit, candidate)
        except unitctl.Refused as error:
            return Refusal(7, what + error.cause, error.next_step)
    return None
