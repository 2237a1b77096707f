"""The transaction, run by systemd as ddtree-tx-UNIT: lock, verify, keep, stop, free, start, wait, hold, commit."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ddtree_console.domain import events as ev
from ddtree_console.domain.plan import Candidate, Plan, plan_from_json
from ddtree_console.hostside import changes, durable, kept, locks, mark, releases, tx_back, tx_end, tx_steps
from ddtree_console.hostside.hostclock import Clock
from ddtree_console.hostside.roots import Roots
from ddtree_console.hostside.tx_base import Requested, Target, Tx
from ddtree_console.hostside.unitctl import Refused

REFUSED, LOCKED = 7, 6


def load_plan(roots: Roots, unit: str) -> tuple[Plan, str]:
    """(plan, transaction) that submit wrote. ValueError or KeyError when there is none."""
    raw = durable.read_json(roots.live(unit) / "plan.json")
    return plan_from_json(raw), str(raw["tx"])


def lock_info(plan: Plan, tx: Tx) -> Mapping[str, Any]:
    """What a lock says of its holder."""
    why = f"{plan.what} {plan.service}" + (f": {plan.reason}" if plan.reason else "")
    return {"who": plan.who, "from": plan.origin, "why": why, "since": round(tx.clock.wall(), 3), "tx": tx.id}


def source(tx: Tx) -> str:
    """The release in place when it begins: rN, 'unmanaged', or '' for none."""
    state = releases.load(tx.roots, tx.unit)
    if state.committed:
        return state.committed
    return "unmanaged" if tx.roots.committed(tx.unit).exists() else ""


def edited_lines(tx: Tx, candidate: Candidate | None) -> list[str]:
    """What was edited since the attempt before, [] where that cannot be told."""
    from ddtree_console.hostside import tx_past  # not needed to go back

    if candidate is None:
        return []
    return tx_past.edited_lines(tx_past.before(tx.roots, tx.unit, tx.id), candidate)


def begin(tx: Tx, target: str, candidate: Candidate | None) -> None:
    """The first event, and the mark by which recovery knows us."""
    plan, before = tx.plan, source(tx)
    tx.remember(before=before, release=target)
    old = kept.read(tx.roots, tx.unit, before) if before not in ("", "unmanaged") else None
    changed = changes.lines(old.profile if old else {}, candidate.profile) if candidate and old else []
    edited = edited_lines(tx, candidate) if plan.what == "deploy" else []
    tx.emit(
        ev.BEGIN,
        what=plan.what,
        unit=plan.unit,
        service=plan.service,
        who=plan.who,
        reason=plan.reason,
        source=before,
        target=target,
        profile=candidate.profile_name if candidate else "",
        on_failure=plan.on_failure,
        deadline=round(tx.clock.boottime() + plan.deadline, 3),
        hold=plan.hold,
        changed=changed,
        edited=edited,
        **{"from": plan.origin},
    )
    for taken in durable.read_json(tx.roots.live(plan.unit) / "plan.json").get("took") or ():
        tx.note(f"taken over: {taken}")


def lock(tx: Tx) -> None:
    """Every lock of the slot. locks.Busy names the holder."""
    with tx.step("lock") as end:
        try:
            tx.locks = locks.acquire(tx.roots, tx.unit, tx.plan.gpus, lock_info(tx.plan, tx), tx.clock)
        except locks.Busy:
            end["state"] = "fail"
            raise


def refuse(tx: Tx, code: str, cause: str, next_step: str, exit_code: int = REFUSED) -> None:
    """Ends it before anything was touched."""
    tx.verdict(code, cause, next_step)
    tx_end.outcome(tx, "refused", detail=cause, exit_code=exit_code)


def deploy(tx: Tx) -> None:
    """A new release, from the lock to the outcome."""
    number = max((kept.number(name) or 0 for name in kept.names(tx.roots, tx.unit)), default=0) + 1
    begin(tx, f"r{number}", tx.plan.new)
    try:
        lock(tx)
        tx_steps.verify(tx)
        tx.check_requests()
        candidate = tx_steps.keep(tx)
        tx.remember(release=candidate.release)
        tx.check_requests()
    except locks.Busy as busy:
        refuse(tx, "other", str(busy), "wait, or take over", LOCKED)
        return
    except Refused as error:
        refuse(tx, error.code, error.cause, error.next_step)
        return
    except Requested as error:
        tx_back.go_back(tx, str(error), error.to)
        return
    trial(tx, Target("new", candidate.release, candidate.profile_name, candidate), gate=True)


def rollback(tx: Tx) -> None:
    """To something kept, at once: no gate before the stop."""
    key = "previous" if tx.plan.to == "known-good" else tx.plan.to
    service = tx_back.is_service(tx.plan, key)
    target = None if service else tx_back.resolve(tx, key)
    name = (tx.plan.way_back_service or "") if service else (target.name if target else tx.plan.to)
    begin(tx, name, target.candidate if target else None)
    try:
        lock(tx)
    except locks.Busy as busy:
        refuse(tx, "other", str(busy), "wait, or take over", LOCKED)
        return
    tx.going = tx.plan.to
    if service:
        to_service(tx)
    elif target is None:
        refuse(tx, "other", f"there is no {tx.plan.to} to go back to", "see the history of this service")
    else:
        trial(tx, target, gate=False)


def trial(tx: Tx, target: Target, gate: bool) -> None:
    """The start that was asked for; when it fails, what the plan says about failure."""
    tx.remember(main=target.key, trying=target.key, release=target.name)
    try:
        verdict = tx_back.attempt(tx, target, gate=gate, judge=tx.plan.what == "deploy")
        if verdict.ok:
            return
        why, wanted = verdict.cause, ""
    except Refused as error:
        tx.verdict(error.code, error.cause, error.next_step)
        why, wanted = error.cause, ""
        if error.code == "process-changed" and releases.load(tx.roots, tx.unit).committed == target.name:
            releases.note_failed(tx.roots, tx.unit, target.name)
    except Requested as error:
        why, wanted = str(error), error.to
    failed(tx, why, wanted)


def to_service(tx: Tx) -> None:
    """Rollback to a way back that is another slot."""
    tx.remember(main="way-back", trying="way-back")
    try:
        if tx_back.to_service(tx):
            return
        why, wanted = f"{tx.plan.way_back_service} does not serve", ""
    except Refused as error:
        tx.verdict(error.code, error.cause, error.next_step)
        why, wanted = error.cause, ""
    except Requested as error:
        why, wanted = str(error), error.to
    failed(tx, why, wanted)


def failed(tx: Tx, why: str, wanted: str) -> None:
    """What the plan says about failure, unless an operator said something else."""
    if tx.plan.on_failure == "leave" and not wanted:
        tx_end.outcome(tx, "left", release=tx.mark.release, detail=f"left as it is: {why}")
        return
    tx.remember(tried=(*tx.mark.tried, tx.mark.trying, tx.mark.release))
    tx_back.go_back(tx, why, wanted)


def main(roots: Roots, args: list[str]) -> int:
    """`tx UNIT`. Exit status 0 once an outcome is recorded; anything else leaves the rest to recovery."""
    try:
        plan, name = load_plan(roots, args[0])
    except (IndexError, KeyError, ValueError, TypeError) as error:
        print(f"no plan to run: {error}", file=sys.stderr)
        return 2
    tx = Tx(roots, plan, name, Clock())
    mark.write(roots, plan.unit, tx.mark)
    try:
        if plan.what == "rollback":
            rollback(tx)
        else:
            deploy(tx)
    finally:
        tx.close()
    return 0
