"""The wait until it serves, and the hold: runs the ladder and writes what it says."""

from __future__ import annotations

from typing import Any

from ddtree_console.domain import events as ev
from ddtree_console.domain.engines import registry
from ddtree_console.domain.engines.base import Engine
from ddtree_console.domain.plan import Candidate
from ddtree_console.domain.secrets import mask
from ddtree_console.domain.txview import Verdict
from ddtree_console.hostside import unitctl
from ddtree_console.hostside.ladder import Expect
from ddtree_console.hostside.ladder_io import Wait
from ddtree_console.hostside.tx_base import Requested, Served, Tx
from ddtree_console.hostside.tx_steps import Started, last_good
from ddtree_console.hostside.unitctl import Refused

EVIDENCE_LINES = 12


def engine_of(name: str) -> Engine:
    """The engine of that name; an unknown one (written by a newer console) is read as generic."""
    try:
        return registry.get(name)
    except KeyError:
        return registry.get("generic")


def expect_of(tx: Tx, candidate: Candidate, started: Started, judge: bool) -> Expect:
    """What the ladder is for. Without `judge` (going back) no drift fails the start."""
    return Expect(
        port=tx.plan.port,
        old_invocation=started.old_invocation,
        restarts=started.restarts,
        hold=tx.plan.hold,
        deadline=tx.plan.deadline + tx.extra,
        set_flags=candidate.set_flags,
        must=candidate.must if judge else (),
        last_good=last_good(tx, candidate.profile_name),
    )


def climb(tx: Tx, unit: str, engine: Engine, expect: Expect) -> Served:
    """Until a verdict; its events are written, also the steps wait and hold."""
    wait = Wait(tx.roots, unit, engine, expect, tx.plan.gpus, tx.clock, tx.gpus())
    ladder = tx.ladder = wait.ladder
    began = tx.clock.boottime()
    step = "wait"
    tx.emit(ev.STEP, step=step, state="run")

    def on_round() -> None:
        nonlocal step, began
        for kind, data in ladder.drain():
            tx.emit(kind, **_masked(data))
        if step == "wait" and ladder.holding:
            tx.emit(ev.STEP, step="wait", state="ok", secs=_since(tx, began))
            step, began = "hold", tx.clock.boottime()
            tx.emit(ev.STEP, step=step, state="run", detail=f"{expect.hold:g} s")
        if ladder.verdict is None:
            tx.check_requests()

    try:
        wait.run(on_round)
    except Requested as error:
        ladder.give_up(tx.clock.boottime(), "requested", str(error))
        on_round()
        _end(tx, step, began, ladder.verdict or Verdict(False))
        raise
    finally:
        tx.ladder = None
    verdict = ladder.verdict or Verdict(False)
    on_round()
    _end(tx, step, began, verdict)
    return Served(verdict, wait.serves, tuple(ladder.times().items()), ladder.invocation, ladder.main_pid)


def wait(tx: Tx, candidate: Candidate, started: Started, judge: bool) -> Served:
    """The whole ladder for a unit that was just started."""
    return climb(tx, tx.unit, engine_of(candidate.engine), expect_of(tx, candidate, started, judge))


def wait_other(tx: Tx) -> Served:
    """The ladder of the fallback service, from model info on. Refused when it cannot be started."""
    plan = tx.plan
    other = plan.way_back_service or ""
    state = unitctl.show(other)
    underway = state.active in ("active", "activating", "reloading")
    if not underway:
        unitctl.start(other)
    expect = Expect(
        port=plan.way_back_service_port,
        restarts=state.restarts,
        hold=min(plan.hold, 5.0),
        deadline=plan.deadline + tx.extra,
        from_info=True,
        underway=underway,
    )
    if not expect.port:
        raise Refused("other", f"the plan does not say the port of {other}")
    return climb(tx, other, engine_of(plan.way_back_service_engine), expect)


def _since(tx: Tx, began: float) -> float:
    return round(tx.clock.boottime() - began, 3)


def _masked(data: dict[str, Any]) -> dict[str, Any]:
    return {key: mask(value) if isinstance(value, str) else value for key, value in data.items()}


def _end(tx: Tx, step: str, began: float, verdict: Verdict) -> None:
    tx.emit(ev.STEP, step=step, state="ok" if verdict.ok else "fail", secs=_since(tx, began))
    tx.emit(
        ev.VERDICT,
        ok=verdict.ok,
        code=verdict.code,
        cause=mask(verdict.cause),
        remedy=verdict.remedy,
        evidence=[mask(line) for line in verdict.evidence[-EVIDENCE_LINES:]],
        exit=dict(verdict.exit),
    )
