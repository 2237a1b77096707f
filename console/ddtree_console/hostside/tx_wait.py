"""The wait until it serves, and the hold: runs the ladder and writes what it says."""

from __future__ import annotations

from typing import Any

from ddtree_console.domain import events as ev
from ddtree_console.domain.engines import registry
from ddtree_console.domain.engines.base import Engine
from ddtree_console.domain.findings.engine import Findings
from ddtree_console.domain.plan import Candidate
from ddtree_console.domain.secrets import mask, mask_data
from ddtree_console.domain.txview import Verdict
from ddtree_console.hostside import rules, tx_past, unitctl
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


def ranks_of(candidate: Candidate) -> int:
    """Schedulers that this launch makes: tensor times pipeline times data parallel size; 0 for another engine."""
    if candidate.engine != "sglang":
        return 0
    count = 1
    for names in (("tp-size", "tensor-parallel-size", "tp"), ("pp-size", "pipeline-parallel-size", "pp")):
        value = next((candidate.set_flags[name] for name in names if name in candidate.set_flags), 1)
        count *= value if isinstance(value, int) and 0 < value < 1024 else 1
    flags = candidate.set_flags
    value = next((flags[n] for n in ("dp-size", "data-parallel-size", "dp") if n in flags), 1)
    alone = not flags.get("enable-dp-attention")  # with it the ranks are shared out, not multiplied
    return count * (value if alone and isinstance(value, int) and 0 < value < 1024 else 1)


def findings_of(tx: Tx, candidate: Candidate | None, judge: bool) -> Findings:
    """The engine of findings for one start: rules of this code and of the plan. What was tried and edited before only
    counts where an edit is judged, and not while going back."""
    loaded = rules.load(own=tx.plan.rules)
    if candidate is None or not judge:
        return Findings(loaded, flags=candidate.set_flags if candidate is not None else {})
    past = tx_past.before(tx.roots, tx.unit, tx.id)
    edited = tx_past.edited_flags(past, candidate)
    tried = tx_past.attempts(tx.roots, tx.unit, tx.id, candidate)
    build = frozenset(tx.plan.build_flags) or None
    return Findings(loaded, flags=candidate.set_flags, build_flags=build, edited=edited, attempts=tried)


def expect_of(tx: Tx, candidate: Candidate, started: Started, judge: bool) -> Expect:
    """What the ladder is for. Without `judge` (going back) no drift fails the start."""
    model = candidate.profile.get("model")
    return Expect(
        port=tx.plan.port,
        old_invocation=started.old_invocation,
        restarts=started.restarts,
        hold=tx.plan.hold,
        deadline=tx.plan.deadline + tx.extra,
        set_flags=candidate.set_flags,
        must=candidate.must if judge else (),
        last_good=last_good(tx, candidate.profile_name),
        ranks=ranks_of(candidate),
        model=model if isinstance(model, str) and model.startswith("/") else "",
    )


def climb(tx: Tx, unit: str, engine: Engine, expect: Expect, findings: Findings) -> Served:
    """Until a verdict; its events are written, also the steps wait and hold."""
    wait = Wait(tx.roots, unit, engine, expect, tx.plan.gpus, tx.clock, tx.gpus(), findings)
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
    times, values = tuple(ladder.times().items()), tuple(ladder.log.values.items())
    return Served(verdict, wait.serves, times, ladder.invocation, ladder.main_pid, values)


def wait(tx: Tx, candidate: Candidate, started: Started, judge: bool) -> Served:
    """The whole ladder for a unit that was just started."""
    expect = expect_of(tx, candidate, started, judge)
    return climb(tx, tx.unit, engine_of(candidate.engine), expect, findings_of(tx, candidate, judge))


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
    return climb(tx, other, engine_of(plan.way_back_service_engine), expect, findings_of(tx, None, False))


def _since(tx: Tx, began: float) -> float:
    return round(tx.clock.boottime() - began, 3)


def _masked(data: dict[str, Any]) -> dict[str, Any]:
    return {key: mask(value) if isinstance(value, str) else value for key, value in data.items()}


def _end(tx: Tx, step: str, began: float, verdict: Verdict) -> None:
    tx.emit(ev.STEP, step=step, state="ok" if verdict.ok else "fail", secs=_since(tx, began))
    finding = {"finding": mask_data(verdict.finding)} if verdict.finding else {}
    tx.emit(
        ev.VERDICT,
        ok=verdict.ok,
        code=verdict.code,
        cause=mask(verdict.cause),
        remedy=mask(verdict.remedy),
        evidence=[mask(line) for line in verdict.evidence[-EVIDENCE_LINES:]],
        exit=dict(verdict.exit),
        **finding,
    )
