"""The readiness ladder as a pure state machine: evidence in, events and at last a verdict out. Boottime seconds.

new InvocationID -> process stable -> the port's listener is ours -> model info 200 -> one real token -> held.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ddtree_console.domain import drift
from ddtree_console.domain import events as ev
from ddtree_console.domain.engines.base import LogReader
from ddtree_console.domain.findings.types import Finding
from ddtree_console.domain.progress import ProgressClock
from ddtree_console.domain.snapshot import Listener, UnitState
from ddtree_console.domain.stalls import Facts, Look
from ddtree_console.domain.txview import Verdict
from ddtree_console.hostside.ladder_finding import CODES, Diagnosis, cause_of, of_code, remedy_text, to_event
from ddtree_console.hostside.ladder_log import WRAPPER_S, Emit, LogSide

if TYPE_CHECKING:
    from ddtree_console.domain.findings.engine import Findings

STABLE_S = 0.5
"""seconds with the same process before it counts as stable."""
FOREIGN_S = 0.35
"""a foreign listener counts once it was seen for so long: a server that only tries its port shows for an instant."""
LINGER_S = 0.3
"""after a fatal line the exit evidence is waited for, but no longer than this."""
APPEAR_S = 10.0
"""a start that makes no invocation within this was refused by systemd."""
BASE = ev.RUNGS


@dataclass(frozen=True)
class Expect:
    """What this wait is for. old_invocation: of the last run of the unit. restarts: NRestarts before the start.

    hold, deadline: seconds. from_info: another slot that may run already: only info, token and held are climbed.
    """

    port: int
    old_invocation: str = ""
    restarts: int = 0
    hold: float = 20.0
    deadline: float = 600.0
    set_flags: Mapping[str, Any] = field(default_factory=dict)
    must: tuple[str, ...] = ()
    last_good: Mapping[str, float] = field(default_factory=dict)
    from_info: bool = False
    underway: bool = False
    """that other slot's process ran before: what it logs from now on is no phase of a start."""
    ranks: int = 0
    """schedulers that it will have, 0 where not known."""
    model: str = ""
    """its weights' folder, '' where not known."""


class Ladder:
    """One wait. Feed evidence, tick() often, drain() events; `verdict` ends it. engine: reads the log for causes."""

    def __init__(self, now: float, expect: Expect, reader: LogReader, engine: Findings | None = None) -> None:
        self.expect = expect
        self.log = LogSide(reader, expect.last_good)
        self.diagnosis = Diagnosis(engine, expect.ranks)
        self.progress = ProgressClock(expect.deadline, now)
        self.verdict: Verdict | None = None
        self.invocation = ""
        self.main_pid = 0
        self.unit: UnitState = UnitState("")
        self.ended = False
        """the unit ended: read the rest of its log, then call finish()."""
        self.listener = Listener()
        self.info: dict[str, Any] = {}
        self.server_info: dict[str, Any] | None = None
        self.secs: dict[str, float] = {}
        self._began = now
        self._rung = 0
        self._since = now
        self._pid_since: float | None = None
        self._ours_reads = 0
        self._foreign_since: float | None = None
        self._lost_since: float | None = None
        self._told_progress = now
        self._moved: set[str] = set()
        self._events: list[Emit] = []
        if expect.from_info:
            for name in BASE[: BASE.index("info")]:
                self._events.append(Emit(ev.RUNG, {"rung": name, "state": "skip"}))
            self._rung = BASE.index("info")
        self._say("run")

    # -- what the caller needs to know

    @property
    def rung(self) -> str:
        """The rung that is climbed now."""
        return BASE[self._rung]

    @property
    def holding(self) -> bool:
        """Whether a token was generated and only the hold is left."""
        return self.rung == "held"

    @property
    def furthest(self) -> str:
        """The last rung or phase reached, for the history."""
        if self._rung >= BASE.index("info"):
            return self.rung
        return self.log.seen[-1] if self.log.seen else self.rung

    def drain(self) -> list[Emit]:
        """Events since the last call."""
        events, self._events = self._events, []
        if self.diagnosis.broken:
            events.append(Emit(ev.NOTE, {"text": self.diagnosis.broken}))
            self.diagnosis.broken = ""
        return events

    def lost(self, now: float) -> bool:
        """Whether its log says that it cannot go on: then its exit is to be seen at once."""
        return self.log.fatal is not None or self.diagnosis.fatal_since(now) is not None

    def times(self) -> dict[str, float]:
        """Seconds of each rung and phase so far."""
        return {**self.log.secs, **self.secs}

    # -- evidence

    def on_unit(self, now: float, state: UnitState) -> None:
        """`systemctl show` of the unit."""
        if self.verdict is not None or not state.load:
            return
        if self.invocation and state.invocation == self.invocation:
            self.diagnosis.unit(now, state)
        if not self.invocation and not self._appeared(now, state):
            return
        if self.ended:
            self.unit = state if state.invocation == self.invocation else self.unit
            return
        restarted = state.restarts > self.expect.restarts or state.invocation not in ("", self.invocation)
        gone = state.active in ("failed", "inactive") or state.sub in ("auto-restart", "auto-restart-queued")
        if restarted or gone:
            # A restart clears the exit status of the run that failed: keep what was seen of that run.
            self.unit = replace(self.unit, restarts=state.restarts) if restarted and not gone else state
            self.ended = True
            return
        self.unit = state
        self._process(now, state)

    def _appeared(self, now: float, state: UnitState) -> bool:
        if state.invocation and (self.expect.from_info or state.invocation != self.expect.old_invocation):
            self.invocation, self.unit = state.invocation, state
            if self.rung == "invocation":
                self._pass(now, state.invocation[:8])
            return True
        if state.load in ("bad-setting", "not-found", "error", "masked"):
            self._fail(now, "start-refused", f"systemd cannot load the unit: {state.load}")
        elif now - self._began >= APPEAR_S and state.active in ("inactive", "failed"):
            self._fail(now, "start-refused", f"systemd did not start it within {APPEAR_S:.0f} s: {state.result}")
        return False

    def _process(self, now: float, state: UnitState) -> None:
        if not state.main_pid:
            return
        if self.main_pid and state.main_pid != self.main_pid:
            self._fail(now, "process-changed", f"the main process changed from {self.main_pid} to {state.main_pid}")
        elif not self.main_pid:
            self.main_pid, self._pid_since = state.main_pid, now
        elif self.rung == "process" and now - (self._pid_since or now) >= STABLE_S:
            self._pass(now, f"pid {state.main_pid}")

    def on_line(self, now: float, text: str, pid: int = 0, source: str = "") -> None:
        """One entry of this invocation's journal. source: 'systemd' for what the manager says of the unit."""
        self.diagnosis.line(now, text, pid, source)
        if source:
            return
        told = self.log.feed(now, text)
        self._events += [x for x in told if x.kind != ev.PHASE] if self.expect.underway else told

    def on_listener(self, now: float, listener: Listener) -> None:
        """Who listens on the port."""
        self.listener = listener
        self._ours_reads = self._ours_reads + 1 if listener.state == "ours" else 0
        if listener.state == "foreign":
            self._foreign_since = now if self._foreign_since is None else self._foreign_since
            if now - self._foreign_since >= FOREIGN_S and self.verdict is None:
                who = f"pid {listener.pid} ({listener.command})" if listener.pid else listener.why
                self._fail(now, "foreign-listener", f"port {self.expect.port} is held by {who}", "stop that process")
            return
        self._foreign_since = None
        if self.rung == "listener" and self._ours_reads >= 2:
            self._pass(now, listener.address)
        if self.holding and listener.state == "nobody":
            self._lost_since = now if self._lost_since is None else self._lost_since
            if now - self._lost_since >= 1.0:
                self._fail(now, "hold-lost", f"nobody listens on port {self.expect.port} any more")
        else:
            self._lost_since = None

    def on_info(self, now: float, body: Mapping[str, Any], model: str) -> None:
        """Model info answered 200."""
        self.info = dict(body)
        if self.rung == "info":
            self._pass(now, model)

    def on_token(self, now: float, detail: str) -> None:
        """A token was generated; server_info is what is known of the flags by now."""
        if self.rung != "token" or self.verdict is not None:
            return
        self._pass(now, detail)

    def on_effective(self, now: float, effective: Mapping[str, Any]) -> None:
        """Effective flags at the time of the first token."""
        asked, log = self.expect.set_flags, self.log
        for found in drift.compare(asked, effective, log.seen, self.expect.must, log.arguments, log.values, log.capped):
            self._events.append(Emit(ev.DRIFT, asdict(found)))
            if found.must and self.verdict is None:
                cause = f"{found.flag} is {found.effective}, not {found.asked}, and the profile says it must be"
                self._fail(now, "must-drift", cause, f"set {found.flag} to what this build can do")

    def on_sample(
        self, now: float, cpu_usec: int | None = None, read_bytes: int | None = None, gpu_memory: int | None = None
    ) -> None:
        """Progress: CPU time of the cgroup, bytes read, GPU memory; log lines are counted here."""
        gpu = {} if gpu_memory is None else {"gpu": gpu_memory}
        seen = self.progress.sample(
            now,
            lines=self.log.lines,
            cpu_usec=cpu_usec,
            read_bytes=read_bytes,
            gpu_memory=gpu_memory,
            phase=self.log.phase or ("warm-up" if self.rung in ("info", "token") else ""),
        )
        self._moved.update(seen.moved)
        if now - self._told_progress >= 1.0:
            self._told_progress = now
            stall = None if seen.stall_at is None else round(seen.stall_at, 3)
            data = {
                "moved": sorted(self._moved),
                "deadline": round(self.progress.deadline, 3),
                "stall_at": stall,
                **gpu,
            }
            look = Look() if self.holding else self.diagnosis.look
            self._events.append(Emit(ev.PROGRESS, {**data, "words": look.words, "stall": look.slug}))
            self._moved.clear()
        if self.verdict is not None or self.ended or self.holding:
            return
        self.diagnosis.silence(now - self.progress.last_moved)
        if seen.stalled or self.diagnosis.look.over:
            self._stalled(now)
        elif seen.over:
            total = self.progress.deadline - self._began
            self._fail(now, "deadline", f"not serving after {total:.0f} s (at {self.furthest})", "extend it with +")

    def on_facts(self, now: float, found: Facts, size: int = 0, util: int | None = None) -> None:
        """A look at the processes; size, util: as in domain.stalls.Start."""
        self.diagnosis.facts(found, self.log.started(now, now - self.progress.last_moved, size, util))

    def tick(self, now: float) -> None:
        """Judges what time alone decides."""
        if self.verdict is not None or self.ended:
            return
        fatal, found = self.log.fatal, self.diagnosis.fatal_since(now)
        # The engine of findings decides what is fatal; the reader's word counts alone only once the process had its
        # time to end, and at once for what never ends by itself.
        alone = WRAPPER_S if self.diagnosis.armed and fatal is not None and fatal[1] == "fatal-log" else LINGER_S
        if found is not None and now - found >= LINGER_S:
            self._fail_by_log(now, "" if fatal is None else fatal[1])
        elif fatal is not None and now - fatal[0] >= alone:
            self._fail_by_log(now, fatal[1])
        elif fatal is None and self.log.dying(now):
            self._fail_by_log(now, "")
        elif self.holding and now - self._since >= self.expect.hold:
            self._held(now, "")

    def confirm(self, now: float) -> bool:
        """An operator takes it as held; False when no token was generated yet."""
        if not self.holding or self.verdict is not None or self.ended:
            return False
        self._held(now, "confirmed by an operator")
        return True

    def finish(self, now: float) -> None:
        """The unit ended and its log was read to the end: the verdict."""
        if self.verdict is not None:
            return
        self.diagnosis.unit(now, self.unit)
        self.diagnosis.end()
        _, cause, _ = self.log.cause()
        unit = self.unit
        if unit.exit_status == 2 and unit.exit_code == 1 and (not self.log.seen or self.log.seen[-1] in EARLY):
            code = "exit-arguments"
        elif self.log.fatal is not None:
            code = _fatal_code(self.log.fatal[1])
        elif unit.restarts > self.expect.restarts or "auto-restart" in unit.sub:
            code = "restarted"
        else:
            code = "unit-failed"
        if self.holding and code in ("restarted", "unit-failed"):
            code = "hold-lost"
        self._fail(now, code, cause or f"the unit ended: {exit_words(unit)}")

    def exit_seen(self, exit_: Mapping[str, Any]) -> None:
        """The unit ended just after the verdict: its exit belongs to the evidence."""
        if self.verdict is not None:
            self.verdict = replace(self.verdict, exit=dict(exit_))

    def give_up(self, now: float, code: str, cause: str, remedy: str = "") -> None:
        """Ends the wait from outside (requested, start-refused, nothing left to ask)."""
        if self.verdict is None:
            self._fail(now, code, cause, remedy)

    # -- inside

    def _fail_by_log(self, now: float, name: str) -> None:
        _, cause, _ = self.log.cause()
        found = self.diagnosis.verdict()
        code = _fatal_code(name) if name or found is None else CODES.get(found.slug, "fatal-log")
        self._fail(now, code, cause or "the log says that it cannot go on")

    def _stalled(self, now: float) -> None:
        still = now - self.progress.last_moved
        found = self.diagnosis.stalled(still, self.log.tail, self.log.lines)
        what = self.log.phase or self.rung
        cause = f"nothing moved for {still:.0f} s in {what}: no log line, CPU, reads, GPU memory"
        look = self.diagnosis.look
        self._fail(now, "stalled", look.words if look.slug == found.slug else cause, found=found)

    def _say(self, state: str, secs: float | None = None, detail: str = "") -> None:
        data: dict[str, Any] = {"rung": self.rung, "state": state}
        if secs is not None:
            data["secs"] = round(secs, 3)
        if self.rung in self.expect.last_good:
            data["last_good"] = self.expect.last_good[self.rung]
        if detail:
            data["detail"] = detail
        self._events.append(Emit(ev.RUNG, data))

    def _pass(self, now: float, detail: str) -> None:
        secs = now - self._since
        self.secs[self.rung] = round(secs, 3)
        self._say("ok", secs, detail)
        self._since = now
        if self.rung != "held":
            self._rung += 1
            self._say("run")

    def _held(self, now: float, detail: str) -> None:
        self._pass(now, detail)
        badge = self.diagnosis.badge()
        self.verdict = Verdict(True, finding=to_event(badge) if badge is not None else {})

    def _fail(self, now: float, code: str, cause: str, remedy: str = "", found: Finding | None = None) -> None:
        if found is None and code in OF_THE_LOG:
            found = self.diagnosis.verdict()
            if found is not None and not found.fatal and not self.ended:
                found = None  # a warning is no reason for what somebody or a clock decided
            cause = cause if found is None else cause_of(found, cause)
        told = of_code(code, cause, remedy) if found is None else to_event(found)
        evidence = self.log.cause()[2] if found is None else tuple(e["text"] for e in told["evidence"])
        exit_ = exit_of(self.unit) if self.ended else {}
        said = remedy if found is None else remedy or remedy_text(found)
        self.verdict = Verdict(False, code, cause, said, evidence, exit_, told)
        self._say("fail", now - self._since, cause)
        self._events += self.log.fail_open(now)


EARLY = ("imports", "arguments")
OF_THE_LOG = (
    *("unit-failed", "restarted", "fatal-log", "exit-arguments", "cannot-bind", "process-changed", "hold-lost"),
    *("deadline", "other"),
)
"""verdicts whose cause is looked for in the log."""


def _fatal_code(name: str) -> str:
    return name if name in ("cannot-bind", "exit-arguments") else "fatal-log"


def exit_of(unit: UnitState) -> dict[str, Any]:
    """The exit evidence of a verdict."""
    return {"result": unit.result, "code": unit.exit_code, "status": unit.exit_status, "restarts": unit.restarts}


def exit_words(unit: UnitState) -> str:
    """How it ended, in words."""
    how = {1: f"exit status {unit.exit_status}", 2: f"signal {unit.exit_status}", 3: f"signal {unit.exit_status}"}
    return f"{how.get(unit.exit_code, 'no exit status')} ({unit.result or unit.active})"
