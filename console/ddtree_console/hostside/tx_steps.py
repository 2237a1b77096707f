"""The steps around a start: verify, keep, stop, free, start. Each writes its events and raises Refused to fail."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ddtree_console.domain.plan import Candidate
from ddtree_console.domain.snapshot import GpuReport, UnitState
from ddtree_console.hostside import adopt, kept, procfs, releases, secret_env, sockets, unitctl
from ddtree_console.hostside.roots import Roots
from ddtree_console.hostside.tx_base import Target, Tx
from ddtree_console.hostside.unitctl import Refused

STOP_FAST_S = 5.0
STOP_LONGEST_S = 900.0
"""systemd's own TimeoutStopSec= comes first; this only ends a stop that has none."""
KILLED_S = 20.0
"""a process that outlives SIGKILL for so long hangs in the kernel."""
EMPTY_S, PORT_S, GPU_S = 10.0, 10.0, 30.0
POLL_S = 0.1


def check_unit(roots: Roots, unit: str, candidate: Candidate) -> None:
    """The unit text as systemd reads it. Refused(verify-failed, trial-shadowed)."""
    shadow = unitctl.shadow(roots, unit)
    if shadow:
        raise Refused("trial-shadowed", f"{shadow} outranks a unit on trial", f"remove {shadow}")
    try:
        said = unitctl.verify(roots, unit, kept.text_at(candidate, kept.way_back_folder(roots, unit)))
    except OSError as error:
        raise Refused("verify-failed", f"cannot write the unit for its check: {error}", "make room in /run") from error
    if said:
        raise Refused("verify-failed", f"systemd-analyze verify: {said}", "correct the profile")


def check_secrets(roots: Roots, candidate: Candidate) -> None:
    """Every secret that it names is on the host. Refused(other)."""
    try:
        secret_env.content(roots, candidate.secrets)
    except secret_env.Missing as error:
        raise Refused("other", str(error), f"add it to {roots.secrets()} (0600, root)") from error


def verify(tx: Tx) -> None:
    """The new unit, and the way back's."""
    with tx.step("verify"):
        for candidate in (tx.plan.new, tx.plan.way_back):
            if candidate is not None:
                check_secrets(tx.roots, candidate)
                check_unit(tx.roots, tx.unit, candidate)


def made(tx: Tx) -> dict[str, Any]:
    """Who made a release, and when."""
    return {"who": tx.plan.who, "wall": round(tx.clock.wall(), 3), "tx": tx.id}


def keep_way_back(tx: Tx) -> None:
    """The way back of this plan, kept for `R`. OSError."""
    if tx.plan.way_back is not None:
        kept.keep_way_back(tx.roots, tx.unit, tx.plan.way_back, made(tx))
    elif tx.plan.way_back_service:
        kept.keep_way_back_service(tx.roots, tx.unit, tx.plan.way_back_service, made(tx))


def keep(tx: Tx) -> Candidate:
    """Keeps the new release, the way back and, when forced, what somebody edited. Refused(disk-full, read-only)."""
    if tx.plan.new is None:
        raise Refused("other", "the plan holds no new release")
    with tx.step("keep") as end:
        try:
            # the new one first: its number was told when the transaction began
            new = kept.keep(tx.roots, tx.unit, tx.plan.new, made(tx))
            state = _keep_unmanaged(tx, releases.load(tx.roots, tx.unit))
            keep_way_back(tx)
            releases.save(tx.roots, tx.unit, state)
        except OSError as error:
            raise unitctl.disk_refused(error, str(tx.roots.kept(tx.unit))) from error
        end["detail"] = new.release
    return new


def _keep_unmanaged(tx: Tx, state: releases.State) -> releases.State:
    """A forced deploy over a unit that was never adopted, or over an edited one, keeps what is there first."""
    if not tx.plan.force or not releases.edited(tx.roots, tx.unit, state):
        return state
    engine = tx.plan.new.engine if tx.plan.new is not None else "generic"
    return adopt.keep_as_it_is(tx.roots, tx.unit, state, engine, made(tx))


@dataclass(frozen=True)
class Before:
    """What ran when the stop began."""

    state: UnitState
    pids: tuple[int, ...] = ()
    gpu: GpuReport | None = None


def stop(tx: Tx) -> Before:
    """Stops the unit: by its TimeoutStopSec, or (fast) 5 s and then SIGKILL. Refused when it will not end."""
    with tx.step("stop") as end:
        state = unitctl.show(tx.unit)
        if not tx.mark.touched:
            tx.remember(touched=True)
        # also a unit that is down: a restart may be waiting to race us
        unitctl.stop(tx.unit)
        pids = tuple(procfs.cgroup_pids(tx.roots, state.control_group))
        began = tx.clock.boottime()
        killed: float | None = None
        now = state
        while not unitctl.down(now):
            t = tx.clock.boottime()
            if killed is None and t - began >= (STOP_FAST_S if tx.fast else STOP_LONGEST_S):
                unitctl.kill(tx.unit)
                killed = t
                end["detail"] = "SIGKILL"
            if killed is not None and t - killed >= KILLED_S:
                raise Refused("other", f"{tx.unit} outlives SIGKILL: {now.active} {now.sub}", "look at its processes")
            tx.clock.sleep(POLL_S if t - began > 0.5 else POLL_S / 4)
            tx.check_requests()
            now = unitctl.show(tx.unit)
    return Before(state, pids)


def free(tx: Tx, before: Before, gate: bool) -> None:
    """Cgroup empty, listener gone, none of the old processes on a GPU. With `gate` what stays taken is Refused."""
    with tx.step("free") as end:
        problems = [_empty(tx, before), _port(tx), _gpu(tx, before, gate)]
        found = [problem for problem in problems if problem is not None]
        if not found:
            return
        if gate:
            raise found[0]
        end["detail"] = "; ".join(problem.cause for problem in found)


def _until(tx: Tx, seconds: float, done: Callable[[], bool]) -> bool:
    end = tx.clock.boottime() + seconds
    while not done():
        if tx.clock.boottime() >= end:
            return False
        tx.clock.sleep(POLL_S)
        tx.check_requests()
    return True


def _empty(tx: Tx, before: Before) -> Refused | None:
    group = before.state.control_group

    def empty() -> bool:
        return not procfs.cgroup_pids(tx.roots, group)

    if not group or _until(tx, STOP_FAST_S, empty):
        return None
    for pid in procfs.cgroup_pids(tx.roots, group):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if _until(tx, EMPTY_S, empty):
        return None
    left = ", ".join(str(pid) for pid in procfs.cgroup_pids(tx.roots, group))
    return Refused("other", f"processes of the old start are left: {left}", "kill them")


def _port(tx: Tx) -> Refused | None:
    def gone() -> bool:
        return sockets.listener(tx.roots, tx.plan.port, "", 0).state == "nobody"

    if _until(tx, PORT_S if tx.plan.what == "deploy" else 1.0, gone):
        return None
    who = sockets.listener(tx.roots, tx.plan.port, "", 0)
    held = f"pid {who.pid} ({who.command})" if who.pid else who.why
    return Refused("port-taken", f"port {tx.plan.port} is held by {held}", "stop that process")


def _gpu(tx: Tx, before: Before, gate: bool) -> Refused | None:
    reader = tx.gpus() if before.pids else None
    if reader is None:
        return None
    old = set(before.pids)
    report = reader.read()

    def on_gpu() -> dict[int, int]:
        gpus = [gpu for gpu in report.gpus if gpu.index in tx.plan.gpus]
        return {process.pid: gpu.index for gpu in gpus for process in gpu.processes if process.pid in old}

    end = tx.clock.boottime() + (GPU_S if gate else STOP_FAST_S)
    while on_gpu() and report.fault is None:
        if tx.clock.boottime() >= end:
            left = ", ".join(f"pid {pid} on GPU {index}" for pid, index in on_gpu().items())
            return Refused("gpus-taken", f"old processes still hold GPU memory: {left}", "kill them or reset the GPU")
        tx.clock.sleep(0.5)
        tx.check_requests()
        report = reader.read()
    return None


@dataclass(frozen=True)
class Started:
    """A start that systemd took. old_invocation, restarts: of before it."""

    old_invocation: str
    restarts: int


def start(tx: Tx, target: Target) -> Started:
    """Trial (or none, for the committed release), daemon-reload, reset-failed, start --no-block. Refused."""
    with tx.step("start") as end:
        if target.committed:
            unitctl.remove_trial(tx.roots, tx.unit)
            unitctl.reload_units()
        else:
            unitctl.write_trial(tx.roots, tx.unit, target.candidate.unit_text)
        unitctl.ctl("reset-failed", tx.unit)
        before = unitctl.show(tx.unit)
        unitctl.start(tx.unit)
        until = tx.clock.boottime() + 1.5
        state = unitctl.show(tx.unit)
        while state.invocation in ("", before.invocation) and tx.clock.boottime() < until:
            tx.clock.sleep(POLL_S / 2)
            state = unitctl.show(tx.unit)
        if state.invocation and state.invocation != before.invocation:
            end["invocation"] = state.invocation
    return Started(before.invocation, before.restarts)


def quiet_stop(tx: Tx) -> None:
    """Stops the unit and takes the trial away before giving up, whatever happens on the way."""
    with contextlib.suppress(Refused):
        stop(tx)
    with contextlib.suppress(Refused):
        unitctl.remove_trial(tx.roots, tx.unit)


def last_good(tx: Tx, profile: str) -> Mapping[str, float]:
    """Seconds of the last good start."""
    return releases.last_good(tx.roots, tx.unit, releases.load(tx.roots, tx.unit), profile)
