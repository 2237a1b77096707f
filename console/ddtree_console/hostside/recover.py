"""ExecStopPost of a transaction: does nothing after a recorded outcome, else goes back itself.

Whatever ended the transaction (SIGKILL, a bug, a stop by hand), the slot ends in a named state.
"""

from __future__ import annotations

import contextlib
import os
import sys

from ddtree_console.domain import events as ev
from ddtree_console.domain.plan import Plan
from ddtree_console.domain.snapshot import UnitState
from ddtree_console.domain.txview import Verdict
from ddtree_console.hostside import (
    ask,
    durable,
    eventlog,
    kept,
    ladder_http,
    locks,
    mark,
    sockets,
    tx,
    tx_back,
    tx_end,
    tx_wait,
    unitctl,
)
from ddtree_console.hostside.hostclock import Clock
from ddtree_console.hostside.roots import Roots
from ddtree_console.hostside.tx_base import Requested, Served, Target, Tx
from ddtree_console.hostside.unitctl import Refused

LOCK_WAIT_S = 30.0


def how_it_ended() -> str:
    """In words, from what systemd tells ExecStopPost."""
    result = os.environ.get("SERVICE_RESULT", "")
    status = os.environ.get("EXIT_STATUS", "")
    return f"{result} {status}".strip() or "for an unknown reason"


def recorded(roots: Roots, plan: Plan, name: str, now: mark.Mark) -> str:
    """The outcome, '' when none is recorded."""
    if now.tx == name and now.outcome:
        return now.outcome
    for event in eventlog.events(roots, plan.unit, name):
        if event.kind == ev.OUTCOME:
            return str(event.data.get("state", "?"))
    return ""


def complete(roots: Roots, plan: Plan, name: str, now: mark.Mark, state: str) -> None:
    """A SIGKILL between an outcome's three records: the missing ones."""
    if not any(event.kind == ev.OUTCOME for event in eventlog.events(roots, plan.unit, name)):
        log = eventlog.EventLog(roots, plan.unit, name, Clock())
        log.emit(
            ev.OUTCOME, state=state, release=now.release, serves="", detail="", exit_code=ev.OUTCOMES.get(state, 3)
        )
    tx_end.write_history(roots, plan.unit, name)


def finish_commit(work: Tx) -> bool:
    """Ends a commit that was cut, when the start that held still runs. False: go back instead."""
    now = work.mark
    state = unitctl.show(work.unit)
    candidate = kept.read(work.roots, work.unit, now.release)
    if now.stage != "commit" or candidate is None or not now.invocation:
        return False
    if (state.invocation, state.main_pid) != (now.invocation, now.main_pid) or unitctl.down(state):
        return False
    target = Target(now.trying, now.release, candidate.profile_name, candidate)
    served = Served(
        Verdict(True), serves(work, state, candidate.engine), tuple(now.secs.items()), now.invocation, now.main_pid
    )
    work.note(f"{now.release} had held and runs on: its commit is ended")
    tx_back.settle(work, target, served)
    return True


def serves(work: Tx, state: UnitState, engine: str) -> str:
    """What answers now, asked of the server."""
    listener = sockets.listener(work.roots, work.plan.port, state.control_group, state.main_pid)
    key = ask.bearer_of(work.roots, state.main_pid)
    return ladder_http.serves_now(tx_wait.engine_of(engine), work.plan.port, listener.address, key)


def answer_pending(work: Tx) -> str:
    """Where a request that nobody answered wants to go; '' for none."""
    try:
        work.check_requests()
    except Requested as error:
        return error.to
    return work.mark.requested


def recover(work: Tx) -> None:
    """From whatever the transaction left to an outcome."""
    plan = work.plan
    wanted = answer_pending(work)
    if not wanted and not work.mark.touched:
        tx_end.outcome(work, "refused", detail="the transaction ended before anything was stopped")
        return
    with contextlib.suppress(Refused):
        if not wanted and finish_commit(work):
            return
    if not wanted and plan.on_failure == "leave" and plan.what == "deploy":
        tx_end.outcome(work, "left", release=work.mark.release, detail="left as it is: the transaction was killed")
        return
    if not wanted and plan.what == "rollback" and work.mark.main and work.mark.trying == work.mark.main:
        # What the operator asked for was not reached yet: that is still where to go.
        main = work.mark.release if kept.number(work.mark.release) is not None else plan.to
        if plan.to == "way-back":
            main = plan.to
        work.remember(main=main)
        wanted = main
    tx_back.go_back(work, f"the transaction was killed ({how_it_ended()})", wanted)


def main(roots: Roots, args: list[str]) -> int:
    """`recover UNIT`."""
    try:
        plan, name = tx.load_plan(roots, args[0])
    except (IndexError, KeyError, ValueError, TypeError) as error:
        print(f"nothing to recover: {error}", file=sys.stderr)
        return 0
    now = mark.read(roots, plan.unit)
    state = recorded(roots, plan, name, now)
    if state:
        complete(roots, plan, name, now, state)
        return 0
    if unitctl.stopping():
        durable.remove(roots.trial(plan.unit))
        return 0
    work = Tx(roots, plan, name, Clock(), now if now.tx == name else None)
    try:
        work.note(f"the transaction ended ({how_it_ended()}); recovery takes over")
        try:
            work.locks = locks.acquire(roots, plan.unit, plan.gpus, tx.lock_info(plan, work), work.clock, LOCK_WAIT_S)
        except locks.Busy as busy:
            work.note(f"recovery goes on without every lock: {busy}")
        recover(work)
    finally:
        work.close()
    return 0
