"""`submit`: validates a plan and hands it to systemd as the transient unit ddtree-tx-UNIT."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddtree_console.domain.plan import Plan, plan_from_json
from ddtree_console.hostside import durable, locks, mark, releases, requests, systemctl, tx_end, unitctl
from ddtree_console.hostside.hostclock import Clock, stamp
from ddtree_console.hostside.reply import refuse, say
from ddtree_console.hostside.roots import Roots

UNIT_NAME = re.compile(r"[A-Za-z0-9_:@][A-Za-z0-9_.:@-]*\.service")
TARGET = re.compile(r"new|way-back|known-good|r[0-9]+")
FOLLOW_S = 0.2
LEAVE_S = 10.0


def problem_of(plan: Plan) -> str:
    """What is wrong with a plan in itself, '' for nothing."""
    if plan.what not in ("deploy", "rollback"):
        return f"what: {plan.what!r} is none of deploy, rollback"
    if not UNIT_NAME.fullmatch(plan.unit):
        return f"unit: {plan.unit!r} is no service unit"
    if plan.way_back_service and not UNIT_NAME.fullmatch(plan.way_back_service):
        return f"way_back_service: {plan.way_back_service!r} is no service unit"
    if not isinstance(plan.port, int) or not 0 < plan.port < 65536:
        return f"port: {plan.port!r} is none"
    if not TARGET.fullmatch(plan.to) or (plan.what == "deploy") != (plan.to == "new"):
        return f"to: {plan.to!r} does not fit {plan.what}"
    if plan.what == "deploy" and (plan.new is None or not plan.new.unit_text.strip()):
        return "new: the unit is missing"
    if plan.on_failure not in ("back", "stop", "leave"):
        return f"on_failure: {plan.on_failure!r} is none of back, stop, leave"
    if not (0 <= plan.hold <= 86400 and 0 < plan.deadline <= 7 * 86400):
        return "hold or deadline: out of range"
    if plan.force and not plan.reason.strip():
        return "force needs a reason"
    for candidate in (plan.new, plan.way_back):
        if candidate is not None and "\0" in candidate.unit_text:
            return "unit text: NUL"
    return ""


def self_command(roots: Roots) -> list[str]:
    """How systemd starts this same host code again."""
    words = [sys.executable or "python3", "-I", "-B", str(Path(sys.argv[0]).resolve())]
    return [*words, f"--roots={Path(roots.path).resolve()}"] if roots.path else words


def run_argv(roots: Roots, plan: Plan) -> list[str]:
    """The systemd-run line: fixed words and paths only, nothing of the plan but the unit's name."""
    me = self_command(roots)
    # Two starts at most (known good, way back), each with its stop, its deadline (it may be extended) and its hold.
    covering = int(2 * (plan.deadline * 2 + plan.hold + 900) + 120)
    properties = {
        "CollectMode": "inactive-or-failed",
        "OOMScoreAdjust": "-900",
        "TimeoutStopSec": str(covering),
        "Type": "exec",
        "KillMode": "control-group",
        "ExecStopPost": " ".join([*me, "recover", plan.unit]),
        "Description": f"ddtree-console transaction of {plan.unit}",
    }
    words = ["systemd-run", "--quiet", "--no-ask-password", "--collect", f"--unit={unitctl.tx_unit(plan.unit)}"]
    words += [f"--property={key}={value}" for key, value in properties.items()]
    return [*words, "--", *me, "tx", plan.unit]


def busy(roots: Roots, plan: Plan) -> tuple[str, dict[str, Any]] | None:
    """(lock, holder) of the first lock of this slot that is held."""
    for name in locks.lock_names(plan.unit, plan.gpus):
        found = locks.holder(roots, name)
        if found is not None:
            return name, found
    return None


def unit_of_holder(roots: Roots, name: str, holder: Mapping[str, Any]) -> str:
    """The service whose transaction holds that lock ('' when it is none of ours)."""
    if not name.startswith("gpu-"):
        return name
    for lock, found in locks.holders(roots).items():
        if found is not None and found.get("tx") == holder.get("tx") and not lock.startswith("gpu-"):
            return lock
    return ""


def take_over(roots: Roots, plan: Plan, clock: Clock) -> list[str]:
    """SIGKILL to the transactions in our way, then their recovery is followed to its end; whom it was taken from."""
    took: list[str] = []
    while True:
        found = busy(roots, plan)
        unit = unit_of_holder(roots, *found) if found is not None else ""
        if found is None or not unit:
            break
        took.append(f"{unit} from {locks.describe(found[1])}")
        kill_and_follow(unit, clock)
        if busy(roots, plan) == found:
            break
    return took


def kill_and_follow(unit: str, clock: Clock) -> None:
    """Ends a running transaction; one that already recovers is only followed."""
    name = unitctl.tx_unit(unit)
    if unitctl.show(name).active in ("active", "activating", "reloading"):
        unitctl.kill(name)
    while not unitctl.down(unitctl.show(name)):
        clock.sleep(FOLLOW_S)


def wait_for_the_last(roots: Roots, unit: str, clock: Clock) -> None:
    """A transaction that has its outcome still takes a moment to leave: its name is ours only then."""
    end = clock.boottime() + LEAVE_S
    while mark.read(roots, unit).outcome and clock.boottime() < end:
        if unitctl.down(unitctl.show(unitctl.tx_unit(unit))):
            return
        clock.sleep(FOLLOW_S / 10)


def submit(roots: Roots, plan: Plan, clock: Clock) -> int:
    """Refuses or starts; the exit status, after one line on stdout."""
    if os.geteuid() != 0 and not roots.path:
        return refuse(7, "only root may deploy here", "give the user sudo -n")
    wait_for_the_last(roots, plan.unit, clock)
    tx_end.close_cut(roots, [plan.unit], clock)
    took = take_over(roots, plan, clock) if plan.takeover else []
    found = busy(roots, plan)
    if found is not None:
        cause = f"{found[0]} is locked by {locks.describe(found[1])}"
        return refuse(6, cause, "wait until it ends, or take over", holder=found[1])
    if plan.what == "deploy":
        from ddtree_console.hostside import preflight  # a rollback waits for none of it

        state = unitctl.show(plan.unit)
        refusal = (
            preflight.edited(roots, plan)
            or preflight.unit_texts(roots, plan)
            or preflight.port(roots, plan, state)
            or preflight.gpus(roots, plan, state)
        )
        if refusal is not None:
            return refuse(refusal.code, refusal.cause, refusal.next_step)
        _note_failed(roots, plan, state.active, state.sub)
    return start(roots, plan, clock, took)


def _note_failed(roots: Roots, plan: Plan, active: str, sub: str) -> None:
    """A committed release that lies there failed is no longer the known good."""
    if roots.trial(plan.unit).exists() or not (active == "failed" or sub == "auto-restart"):
        return
    try:
        releases.note_failed(roots, plan.unit, releases.load(roots, plan.unit).committed)
    except OSError as error:
        sys.stderr.write(f"state.json: {error.strerror}\n")


def start(roots: Roots, plan: Plan, clock: Clock, took: Sequence[str] = ()) -> int:
    """Writes plan.json and starts the transient unit."""
    tx = f"{stamp(clock.wall())}-{os.urandom(2).hex()}"
    requests.withdraw(roots, plan.unit)
    try:
        durable.write_json(roots.live(plan.unit) / "plan.json", {**plan.to_json(), "tx": tx, "took": list(took)}, 0o600)
    except OSError as error:
        return refuse(7, f"{roots.live(plan.unit)}: {error.strerror}", "make room in /run")
    done = systemctl.run(run_argv(roots, plan), 30)
    if done.status != 0:
        code = 6 if "already" in done.problem or "exists" in done.problem else 7
        return refuse(code, f"systemd-run: {done.problem}", "see systemctl status of the host")
    return say({"ok": True, "tx": tx})


def main(roots: Roots, args: list[str]) -> int:
    """`submit`: a plan on stdin."""
    try:
        plan = plan_from_json(json.loads(sys.stdin.buffer.read()))
        problem = problem_of(plan)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return refuse(2, f"bad plan: {type(error).__name__}: {error}", "use a console of this version")
    if problem:
        return refuse(2, f"bad plan: {problem}", "correct the profile or the command")
    return submit(roots, plan, Clock())
