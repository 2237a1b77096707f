"""The one word for a service, from what was last seen of it: glyph, word, colour and the reason. Pure.

A service is `ready` only with proof that *this* start generated a token: the ladder of the transaction that started
it, a token seen by a probe, or a generation rate that the server itself reports. Active, listening or HTTP 200 is
never more than `starting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddtree_console.domain import drift
from ddtree_console.domain.snapshot import HostSnapshot, ServiceSnapshot, UnitState
from ddtree_console.domain.txview import TxView

FAILED, MOVING, DEGRADED, LOST, STOPPED, DRIFTED, READY = range(7)
STALE_AFTER = 15.0
"""seconds without any report from a connected watcher (it beats every 2 s) after which a state is no longer claimed."""

# outcomes after which something serves in the slot, proved by the ladder
_PROVED = ("committed", "serving_uncommitted", "went_back", "went_way_back")
_OUTCOME_WORDS = {
    "nothing_serves": "nothing serves",
    "stopped": "failed, stopped",
    "left": "failed",
    "cut": "cut by a reboot",
}


@dataclass(frozen=True)
class State:
    """What a row shows. colour: good | work | warn | bad | dim. rank sorts rows, the most urgent first."""

    glyph: str
    word: str
    colour: str
    detail: str = ""
    rank: int = READY

    @property
    def text(self) -> str:
        """Glyph and word."""
        return f"{self.glyph} {self.word}"


def ails(service: ServiceSnapshot) -> bool:
    """Whether its finding is an ailment of a running server, and not a badge of one that is well."""
    return service.finding is not None and service.finding.rule.startswith("ailment:")


def service_state(host: HostSnapshot, service: ServiceSnapshot, now: float, gpus: Sequence[int] = ()) -> State:
    """The state of a service; `now`: the console's monotonic time, as in FleetSnapshot.now; `gpus`: the slot's own."""
    lost = _link_state(host, service, now)
    if lost is not None:
        return lost
    unit, tx = service.unit, service.tx
    if tx is not None and tx.running:
        return _moving(tx)
    if unit is None:
        return State("?", "unknown", "dim", "no report of its unit yet", LOST)
    dead = _dead(unit, tx)
    return dead if dead is not None else _alive(host, service, unit, gpus)


def proved(service: ServiceSnapshot) -> bool:
    """Whether this very start is known to have generated a token."""
    unit, tx = service.unit, service.tx
    if unit is None:
        return False
    if service.http.tok_s:
        return True
    if service.http.token and service.http.token == unit.invocation:
        return True
    if tx is None or tx.outcome not in _PROVED or tx.attempt is None:
        return False
    return bool(unit.invocation) and tx.attempt.invocation == unit.invocation


def progress(tx: TxView) -> int | None:
    """Percent of the current start: time so far over the last good start's, at most 99; None where neither is known."""
    attempt = tx.attempt
    if attempt is None:
        return None
    # Each rung's time runs from the rung before it, so that together they are the whole start.
    good = sum(x.last_good for x in attempt.rungs if x.last_good and x.name != "held")
    began = min((x.since for x in attempt.rungs if x.since is not None), default=None)
    if not good or began is None:
        return None
    return max(0, min(99, int(100 * (tx.t - began) / good)))


def _link_state(host: HostSnapshot, service: ServiceSnapshot, now: float) -> State | None:
    seen = service.at if service.at is not None else host.at
    age = "" if seen is None else f" {_age(now - seen)}"
    if host.link == "connecting" and seen is None:
        return State("?", "connecting", "dim", host.error, LOST)
    if host.link == "refused":
        return State("?", "refused", "warn", host.error, LOST)
    if host.link in ("down", "connecting"):
        return State("?", f"unreachable{age}", "warn", host.error, LOST)
    if seen is not None and now - seen > STALE_AFTER:
        return State("?", f"stale{age}", "warn", "connected, but the host's watcher says nothing", LOST)
    return None


def _age(seconds: float) -> str:
    """14s, 3m, 2h, 4d."""
    s = max(0, int(seconds))
    if s < 60:
        return f"{s}s"
    if s < 3600:
        return f"{s // 60}m"
    return f"{s // 3600}h" if s < 86400 else f"{s // 86400}d"


def _moving(tx: TxView) -> State:
    back = tx.what == "rollback" or len(tx.attempts) > 1
    attempt = tx.attempt
    running = None
    if attempt is not None:
        lines = (*attempt.phases, *attempt.rungs, *attempt.steps)
        running = next((x for x in lines if x.state == "run"), None)
    where = running.name if running is not None else "begins"
    target = attempt.target if attempt is not None else tx.target
    if back:
        return State("↻", "going back", "work", f"to {target or 'the way back'}: {where}", MOVING)
    percent = progress(tx)
    word = "starting" if percent is None else f"starting {percent}%"
    return State("◐", word, "work", f"{target} on trial: {where}", MOVING)


def _dead(unit: UnitState, tx: TxView | None) -> State | None:
    word = _OUTCOME_WORDS.get(tx.outcome) if tx is not None else None
    cause = _cause(tx)
    if unit.load == "not-found":
        return State("○", "no unit", "dim", f"{unit.unit} does not exist on the host", STOPPED)
    if unit.load in ("error", "bad-setting", "masked"):
        return State("✖", f"unit {unit.load}", "bad", f"systemd cannot load {unit.unit}", FAILED)
    if unit.sub == "auto-restart":
        return State("✖", "crash loop", "bad", cause or _exit(unit), FAILED)
    if unit.active == "failed":
        return State("✖", word or "failed", "bad", cause or _exit(unit), FAILED)
    if unit.active in ("inactive", "deactivating"):
        if word is not None:
            return State("✖", word, "bad", cause, FAILED)
        return State("○", "stopping" if unit.active == "deactivating" else "stopped", "dim", "", STOPPED)
    return None


def _alive(host: HostSnapshot, service: ServiceSnapshot, unit: UnitState, gpus: Sequence[int]) -> State:
    http, listener, tx = service.http, service.listener, service.tx
    if listener.state == "foreign":
        who = f"{listener.command or 'another process'} (pid {listener.pid})"
        return State("✖", "port taken", "bad", f"its port belongs to {who}", FAILED)
    if service.finding is not None and ails(service):
        return State("▲", "degraded", "warn", service.finding.summary, DEGRADED)
    gpu = _gpu_fault(host, unit, gpus)
    answers = http.status == 200 and not http.error
    if not proved(service):
        if tx is not None and tx.outcome == "left":
            return State("✖", "failed", "bad", _cause(tx), FAILED)
        if answers:
            return State("◐", "answers", "work", "HTTP answers; no token seen from this start yet", MOVING)
        return State("◐", "starting", "work", gpu or _waiting(service), MOVING)
    if not answers:
        what = http.error or (f"HTTP {http.status} at {http.path}" if http.status is not None else "")
        if what:
            return State("▲", "degraded", "warn", f"served before, now {what}", DEGRADED)
    if listener.state == "nobody":
        return State("▲", "degraded", "warn", "served before, now nobody listens on its port", DEGRADED)
    if gpu:
        return State("▲", "degraded", "warn", gpu, DEGRADED)
    if tx is not None and tx.outcome == "serving_uncommitted":
        boots = service.release.committed or "what was there before"
        return State("▲", "not committed", "warn", f"serving, not committed: a reboot starts {boots}", DEGRADED)
    return _ready(service, unit, tx)


def _ready(service: ServiceSnapshot, unit: UnitState, tx: TxView | None) -> State:
    if service.drift and not drift.accepted(service.drift, service.release.accepted_drift):
        first = service.drift[0]
        more = f" and {len(service.drift) - 1} more" if len(service.drift) > 1 else ""
        detail = f"drift: {first.flag} asked {first.asked}, has {first.effective}{more}"
        return State("●", "ready ≠", "good", detail, DRIFTED)
    if service.release.edited:
        return State("●", "ready ≠", "good", f"edited by hand: {', '.join(service.release.edited)}", DRIFTED)
    if unit.need_reload:
        return State("●", "ready ≠", "good", "unit file changed on disk; systemd has not reloaded it", DRIFTED)
    if tx is not None and tx.outcome in ("went_back", "went_way_back"):
        return State("●", "ready", "good", f"went back: {_cause(tx) or tx.detail}", READY)
    return State("●", "ready", "good", "", READY)


def _gpu_fault(host: HostSnapshot, unit: UnitState, gpus: Sequence[int]) -> str:
    for gpu in host.gpus.gpus:
        if gpu.fault and (gpu.index in gpus or any(p.unit == unit.unit for p in gpu.processes)):
            return f"GPU {gpu.index}: {gpu.fault}"
    return ""


def _waiting(service: ServiceSnapshot) -> str:
    if service.listener.state == "nobody":
        return "active, nobody listens on its port yet"
    if service.http.error:
        return f"active, HTTP: {service.http.error}"
    if service.http.status is not None:
        return f"active, HTTP {service.http.status} at {service.http.path}"
    return "active, not answering yet"


def _cause(tx: TxView | None) -> str:
    if tx is None:
        return ""
    for attempt in tx.attempts:
        if attempt.verdict is not None and not attempt.verdict.ok:
            return attempt.verdict.cause
    return tx.detail


def _exit(unit: UnitState) -> str:
    restarts = f", {unit.restarts} restarts" if unit.restarts else ""
    return f"result {unit.result or '?'}, exit {unit.exit_code}/{unit.exit_status}{restarts}"
