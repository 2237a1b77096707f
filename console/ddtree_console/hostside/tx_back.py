"""Going back, once: known good, then the way back; or first where an operator asked to go. Ends in an outcome."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ddtree_console.domain import events as ev
from ddtree_console.domain.plan import Candidate, Plan
from ddtree_console.domain.txview import Verdict
from ddtree_console.hostside import durable, kept, releases, tx_commit, tx_end, tx_steps, unitctl
from ddtree_console.hostside.roots import Roots
from ddtree_console.hostside.tx_base import Requested, Served, Target, Tx
from ddtree_console.hostside.unitctl import Refused

LEAVE = "leave"
BAD_RELEASE = ("unit-failed", "restarted", "fatal-log", "exit-arguments", "process-changed", "hold-lost")
"""verdicts that speak against the release itself, not against the port or the GPUs."""
NAMES = {"known-good": "went_back", "way-back": "went_way_back"}


def order(plan: Plan, tried: Sequence[str], wanted: str) -> list[str]:
    """Where to go, best first: what was asked for, then known good, then the way back; never twice to the same."""
    if plan.on_failure == "stop" and not wanted:
        return []
    keys = [wanted] if wanted else []
    keys.append("known-good")
    if plan.what == "rollback" or plan.way_back is not None or plan.way_back_service:
        # A deploy goes by itself only where its own plan says; what older ones kept is for `R`.
        keys.append("way-back")
    return [key for key in dict.fromkeys(keys) if key not in tried]


def is_service(plan: Plan, key: str) -> bool:
    """Whether that key means another slot."""
    return key == "way-back" and bool(plan.way_back_service) and plan.way_back is None


def _from_disk(roots: Roots, plan: Plan, release: str) -> Candidate | None:
    """The committed unit as it lies in /etc, where the kept copy is gone."""
    text = durable.read_text(releases.committed_path(roots, plan.unit, release))
    engine = plan.new.engine if plan.new is not None else "generic"
    return None if text is None else Candidate(text, release=release, engine=engine)


def way_back(roots: Roots, plan: Plan, made: dict[str, object]) -> Candidate | None:
    """The way back under its release number; unnumbered where the disk refuses even that; None when none is named."""
    candidate = plan.way_back or kept.read_way_back(roots, plan.unit)
    if candidate is None:
        return None
    with contextlib.suppress(OSError):
        return kept.keep(roots, plan.unit, candidate, made, reuse=True)
    text = kept.text_at(candidate, kept.way_back_folder(roots, plan.unit))
    return Candidate(
        text, candidate.profile_name, candidate.profile, candidate.engine, "", candidate.secrets,
        candidate.set_flags, candidate.must,
    )  # fmt: skip


def resolve(tx: Tx, key: str) -> Target | None:
    """What a key means now; None when there is no such thing. key: known-good | previous | way-back | rN."""
    roots, unit = tx.roots, tx.unit
    state = releases.load(roots, unit)
    if key == "way-back":
        candidate = way_back(roots, tx.plan, tx_steps.made(tx))
        if candidate is None:
            return None
        name = candidate.release or candidate.profile_name
        # Already what /etc holds: then it needs no trial.
        same = bool(candidate.release) and candidate.release == state.committed and not releases.edited(roots, unit)
        return Target(key, name, candidate.profile_name, candidate, same)
    release = {"known-good": state.known_good, "previous": releases.previous(roots, unit, state)}.get(key, key)
    if not release:
        return None
    committed = release == state.committed and releases.committed_path(roots, unit, release).exists()
    candidate = kept.read(roots, unit, release)
    if candidate is None and committed:
        candidate = _from_disk(roots, tx.plan, release)
    return None if candidate is None else Target(key, release, candidate.profile_name, candidate, committed)


def outcome_of(tx: Tx, key: str) -> str:
    """The outcome when that one serves: what was asked for, or where it went back to."""
    return "committed" if key == tx.mark.main else NAMES.get(key, "went_back")


def attempt(tx: Tx, target: Target, *, gate: bool, judge: bool) -> Verdict:
    """One start of one target to its commit. On success the outcome is recorded; Requested and Refused go through."""
    before = tx_steps.stop(tx)
    tx_steps.free(tx, before, gate)
    from ddtree_console.hostside import tx_wait  # half of all imports, and none of it is needed to stop

    started = tx_steps.start(tx, target)
    served = tx_wait.wait(tx, target.candidate, started, judge)
    if not served.verdict.ok:
        return served.verdict
    settle(tx, target, served)
    from ddtree_console.hostside import starts  # after the outcome: nothing waits for it

    starts.note(tx, target.candidate, served)
    return served.verdict


def settle(tx: Tx, target: Target, served: Served) -> None:
    """What held is committed, and the outcome recorded. Refused(process-changed) when the commit disturbed it."""
    state = outcome_of(tx, target.key)
    if target.committed:
        tx_commit.record_held(tx, target.candidate.release, dict(served.secs))
        tx_end.outcome(tx, state, release=target.name, serves=served.serves)
        return
    try:
        release = tx_commit.commit(tx, target, served)
    except Refused as error:
        if error.code == "process-changed":
            raise
        tx.verdict(error.code, f"not committed: {error.cause}", error.next_step)
        now = releases.load(tx.roots, tx.unit).committed
        after = f"a reboot starts {now}" if now else "a reboot starts nothing"
        detail = f"serving, not committed: {after} ({error.cause})"
        tx_end.outcome(tx, "serving_uncommitted", release=target.name, serves=served.serves, detail=detail)
        return
    tx_end.outcome(tx, state, release=release, serves=served.serves)


def to_service(tx: Tx) -> bool:
    """Stops this slot, swaps enablement, and confirms that the other one serves. False when it does not."""
    other = tx.plan.way_back_service or ""
    tx_steps.stop(tx)
    # A server that ends its own tree by SIGKILL when asked to stop, as SGLang does, did not fail.
    unitctl.ctl("reset-failed", tx.unit)
    from ddtree_console.hostside import tx_wait  # as in attempt()

    unitctl.remove_trial(tx.roots, tx.unit)
    served = tx_wait.wait_other(tx)
    if not served.verdict.ok:
        return False
    with tx.step("commit"):
        for unit, on in ((other, True), (tx.unit, False)):
            problem = unitctl.enable(unit, on)
            if problem:
                tx.note(problem)
    detail = f"{other} serves, {tx.unit} is stopped"
    tx_end.outcome(tx, outcome_of(tx, "way-back"), serves=served.serves, detail=detail)
    return True


def _one(tx: Tx, key: str, why: str) -> str | None:
    """Tries one place; None when it serves (outcome recorded), '' when there is no such place, else why it failed."""
    service = is_service(tx.plan, key)
    target = None
    if not service:
        try:
            target = resolve(tx, key)
        except Exception as error:  # whatever is broken in what was kept: the next place may be whole
            tx.note(f"{key}: {type(error).__name__}: {error}")
        if target is None or target.name in tx.mark.tried:
            tx.remember(tried=(*tx.mark.tried, key))
            return ""
    name = tx.plan.way_back_service or "" if target is None else target.name
    tx.going = key
    tx.remember(stage="back", trying=key, release=name)
    tx.emit(ev.BACK, target=name, profile="" if target is None else target.profile, why=why)
    code, cause = "", "it does not serve"
    try:
        if target is None:
            if to_service(tx):
                return None
        else:
            verdict = attempt(tx, target, gate=False, judge=False)
            if verdict.ok:
                return None
            code, cause = verdict.code, verdict.cause
    except Refused as error:
        tx.verdict(error.code, error.cause, error.next_step)
        code, cause = error.code, error.cause
    finally:
        if not tx.mark.outcome:
            tx.remember(tried=(*tx.mark.tried, key, name))
    if target is not None and target.committed and code in BAD_RELEASE:
        with contextlib.suppress(OSError):
            releases.note_failed(tx.roots, tx.unit, target.name)
    return f"{name} failed too: {cause}"


def go_back(tx: Tx, why: str, wanted: str = "") -> None:
    """Goes back to its outcome. wanted: where an operator asked to go ('' = by itself)."""
    began = False
    queue = order(tx.plan, tx.mark.tried, wanted)
    while queue and wanted != LEAVE:
        try:
            result = _one(tx, queue[0], why)
        except Requested as error:
            wanted, why, began = error.to, str(error), True
            queue = order(tx.plan, tx.mark.tried, wanted)
            continue
        if result is None:
            return
        began = began or result != ""
        why = result or why
        queue = order(tx.plan, tx.mark.tried, "")
    if wanted == LEAVE:
        tx_end.outcome(tx, "left", release=tx.mark.release, detail="left as it is, as asked")
        return
    with contextlib.suppress(Requested):
        tx_steps.quiet_stop(tx)
    if tx.plan.on_failure == "stop" and not began:
        tx_end.outcome(tx, "stopped", detail=f"unit stopped, as asked: {why}")
    elif not began:
        tx_end.outcome(tx, "stopped", detail=f"no known good and no way back: unit stopped ({why})")
    else:
        tx_end.outcome(tx, "nothing_serves", detail=f"unit stopped: {why}")
