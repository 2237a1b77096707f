"""The engine of findings: a service's log, unit and probes go in, a diagnosed cause comes out. Pure and incremental.

Memory is bounded, whatever is fed: see Start.keep. A line that no rule's words touch costs a few microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ddtree_console.domain.findings import judge, text, unitside
from ddtree_console.domain.findings.attempts import Attempted
from ddtree_console.domain.findings.blocks import Block, Tracebacks
from ddtree_console.domain.findings.phases import phase_of_frames, phase_of_text
from ddtree_console.domain.findings.rules import SPAN, Rule, Rules
from ddtree_console.domain.findings.start import Seen, Start
from ddtree_console.domain.findings.types import Finding

QUIET = ("Decode batch", "Prefill batch")
KEPT_STARTS = 8
_BAD = re.compile(r"\b(?:fatal|abort(?:ed)?|killed|denied|panic|exception|cannot|refused)\b")
_MIXED = re.compile(r"Error[A-Z]\w{0,80}Error|Error: ?:|[a-z]Error: \w{1,80}Error: |\S\[20\d\d-")
"""two ranks wrote into one line: words may be broken."""
_HEADS = re.compile(r"(?:EngineCore|WorkerProc) failed to start\.\s*$")
"""vLLM's words for SGLang's `Scheduler hit an exception`: the process whose traceback follows is over."""
_MATCHED = frozenset(("exception", "message", "line", "systemd", "kernel"))


class Findings:
    """Feed one service's log in order; ask `verdict()` at any time."""

    def __init__(
        self,
        rules: Rules,
        *,
        flags: Mapping[str, Any] = {},
        build_flags: frozenset[str] | None = None,
        edited: tuple[str, ...] = (),
        attempts: Sequence[Attempted] = (),
    ) -> None:
        self._rules, self._build, self._edited = rules, build_flags, edited
        self._given = dict(flags)
        self._attempts = list(attempts)[-KEPT_STARTS:]
        self._start = Start()
        self._before: Start | None = None
        self._traces = Tracebacks()
        self._pid: int | None = None
        self._closed = False
        self._ended = False
        self._cached: tuple[Finding, ...] | None = None
        self.lines = 0
        """lines read so far; an evidence's line is counted from 1."""

    # ---- what comes in

    def feed(self, entry: str, *, t: float | None = None, pid: int | None = None, source: str = "") -> None:
        """One journal entry. t: seconds, any clock, increasing. source: systemd | kernel | '' for the service's own."""
        for part in text.pieces(entry):
            self._line(part, t, pid, source)

    def unit(
        self, active: str, sub: str, result: str, exec_code: str, exec_status: str, restarts: int, t: float
    ) -> None:
        """A state of the unit, as systemd shows it (words, not numbers)."""
        if active == "failed" or sub in ("auto-restart", "auto-restart-queued"):
            self._over("exit", self.lines)
            self._start.exit.update(code=exec_code, status=exec_status, result=result)
            self._cached = None

    def probe(self, kind: str, value: Any = None, t: float | None = None) -> None:
        """A sample from outside the log: kind `schedulers` (live, wanted) or `lock` (pid that holds a build lock)."""
        self._start.flags[f"probe {kind}"] = value
        self._cached = None

    def silence(self, t: float) -> None:
        """Nothing came until t, by the clock of `feed`; a file that ends is no silence."""
        if self._start.last is not None:
            self._start.silent = max(self._start.silent, t - self._start.last)
            self._cached = None

    def end(self) -> None:
        """The process is gone and its log was read to its end."""
        self._over("gone", self.lines)
        self._ended, self._cached = True, None

    def close(self) -> None:
        """The log ends here, and nothing is known of the process: what failed last stands."""
        self._closed, self._cached = True, None

    # ---- what comes out

    @property
    def phase(self) -> str:
        """What is under way, or was when it ended."""
        return self._start.phases.now or (self._start.phases.seen[-1] if self._start.phases.seen else "")

    @property
    def served(self) -> bool:
        """Whether this start said that it is ready."""
        return self._start.phases.served

    @property
    def attempts(self) -> tuple[Attempted, ...]:
        """Earlier starts, oldest first: those given and those read in this log."""
        return tuple(self._attempts)

    def verdict(self) -> Finding | None:
        """The first finding; None while nothing is wrong."""
        found = self.findings()
        return found[0] if found else None

    def findings(self) -> tuple[Finding, ...]:
        """Verdict first, then badges; () while nothing is wrong. Computed once after each change."""
        if self._cached is None:
            self._cached = judge.findings(
                self._start,
                before=self._before,
                attempts=self._attempts,
                given=self._given,
                build=self._build,
                edited=self._edited,
                closed=self._closed,
            )
        return self._cached

    # ---- one line

    def _line(self, line: str, t: float | None, pid: int | None, source: str) -> None:
        self.lines += 1
        start = self._start
        start.lines += 1
        rank, message, prefix = text.strip(line)
        if message[:1] == "(" and unitside.SILENCE.match(message) is not None:
            if t is not None:
                start.noted = True
                self.silence(t)
            return
        if t is not None:
            if start.began is None:
                start.began = t
            start.last = t
        if message.startswith(QUIET):
            self._works(message.startswith("Decode"))
            return
        if "HTTP/1." in message and '" 2' in message:
            self._answers('"POST /v1/' in message, t)
            return
        number = self.lines
        start.silent, start.noted = 0.0, False
        if message:
            start.last_text, start.last_line = message, number
        if source == "systemd" or (source != "kernel" and unitside.is_manager(message)):
            self._manager(number, message)
            return
        if source == "kernel":
            self._match(number, message, "kernel", None, rank)
            return
        self._program(number, message, rank, prefix, pid)

    def _works(self, served: bool) -> None:
        """A request is served: the log may have begun after the start's own line of that."""
        start = self._start
        if not served:
            return
        if not start.phases.served:
            start.phases.served, start.phases.now = True, "ready"
        if start.seen and start.moved <= start.seen[-1].line:
            self._cached = None
        start.moved = self.lines

    def _answers(self, served: bool, t: float | None) -> None:
        """A request over HTTP was answered; most of them need no scheduler."""
        self._works(served)
        if not served:
            start = self._start
            start.answered, start.answered_t = self.lines, t
            if start.seen and start.seen[-1].block is not None:
                self._cached = None

    def _program(self, number: int, message: str, rank: str, prefix: str, pid: int | None) -> None:
        start = self._start
        phases = start.phases
        if message.startswith("Load weight"):
            start.ranks(rank, message)
        if phases.feed(message):
            if message.startswith("server_args="):
                start = self._arguments(number, message)
            start.moved, start.phase_began = number, start.last
            self._cached = None
        if message.startswith("server_args="):
            return
        if "%|" in message or "% Completed" in message:
            start.moved, start.bars = number, start.bars + 1
        place, block = self._traces.feed(number, message, rank, prefix, pid, phases.now)
        if place == "line" and _HEADS.search(message) is not None:
            self._traces.next_is(pid, "scheduler")
        if message[:1] == "\t" and place == "line":
            return  # a listing (assembly, a table): thousands of them, and none tells a cause
        if place in _MATCHED:
            self._match(number, message, place, block, rank)
        elif place == "open" and block is not None and start.counts.get("asgi-mark"):
            block.kind = block.kind or "asgi"
            start.counts["asgi-mark"] = 0

    def _arguments(self, number: int, message: str) -> Start:
        """The server's own line of its arguments; after anything that was read of a start it begins another one."""
        if (
            self._start.over
            or len(self._start.phases.seen) > 1
            or any(x.place == "exception" for x in self._start.seen)
        ):
            self._restart(number)
            self._start.phases.feed(message)
        self._start.read_arguments(message)
        return self._start

    def _match(self, number: int, message: str, place: str, block: Block | None, rank: str) -> None:
        low = message[:SPAN].lower()
        start = self._start
        words = self._rules.words(low)
        found = self._rules.find(message, low, words) if words else []
        if not found and low.count("rror") > 1 and _MIXED.search(message[:600]) is not None:
            found = self._rules.search(message)
        kept = False
        phase = start.phases.now
        if found and found[0][0].role == "benign":
            return
        if found or place == "exception":
            phase = phase_of_text(low) or (phase_of_frames(block.frames) if block is not None else "") or phase
        fitting = [x for x in found if place in x[0].where and self._fits(x[0], block, phase)]
        if fitting:
            # a rule that knows only the exception's class and where it was raised yields to one that reads the message
            told = next((x for x in fitting if x[0].role == "consequence"), None) if fitting[0][0].generic else None
            rule, groups = told or fitting[0]
            self._keep(Seen(number, message, rule, groups, place, block, rank, phase, start.phases.served))
            kept = True
        if not kept:
            if place == "exception" and block is not None:
                self._keep(Seen(number, message, None, {}, place, block, rank, phase, start.phases.served))
            elif "rror" in low or "fail" in low or _BAD.search(low[:300]) is not None:
                start.tail.append((number, message[:500]))
                self._cached = None
            elif place == "line" and message:
                start.ordinary = number

    def _fits(self, rule: Rule, block: Block | None, phase: str) -> bool:
        start = self._start
        if rule.served is not None and rule.served != start.phases.served:
            return False
        if rule.phases and not any(p in phase for p in rule.phases):
            return False
        return rule.frames is None or (block is not None and rule.frames.search("\n".join(block.frames)) is not None)

    def _keep(self, seen: Seen) -> None:
        start, rule = self._start, seen.rule
        seen.t = start.last
        if rule is not None and rule.id == "asgi":
            start.counts["asgi-mark"] = 1
            return
        start.keep(seen)
        self._cached = None
        if rule is None:
            return
        if rule.role == "wrapper" and "inner" in seen.groups:
            self._inner(seen)
        if rule.id in ("sigquit", "scheduler-died", "killed-word"):
            self._over("sigquit", seen.line)
        elif rule.id in ("sigterm", "child-terminated") and not start.over:
            start.stopped = start.stopped or seen.line

    def _inner(self, wrapper: Seen) -> None:
        """What a wrapper quotes, as if it had been printed alone."""
        inner = wrapper.groups["inner"]
        for rule, groups in self._rules.find(inner):
            if rule.role == "benign":
                continue
            if rule.role != "wrapper" and self._quoted(rule, wrapper):
                wrapper.quotes = True
                seen = Seen(
                    wrapper.line, wrapper.text, rule, groups, wrapper.place, wrapper.block, wrapper.rank, wrapper.phase,
                    wrapper.served, inner=True,
                )  # fmt: skip
                self._start.keep(seen)
                return

    def _quoted(self, rule: Rule, wrapper: Seen) -> bool:
        return not rule.where.isdisjoint(("exception", "message")) and self._fits(rule, wrapper.block, wrapper.phase)

    # ---- the unit

    def _manager(self, number: int, message: str) -> None:
        note, start = unitside.read(message), self._start
        if note.kind == "exit":
            start.exit.update(code=note.code, status=note.status)
            self._over("exit", number)
        elif note.kind == "result":
            start.exit["result"] = note.status
            self._over("exit", number)
        elif note.kind == "stopping" and not start.over:
            start.stopped = start.stopped or number
        self._match(number, message, "systemd", None, "")
        if note.kind == "restart" or (note.kind == "started" and start.over):
            self._restart(number)

    def _over(self, why: str, number: int) -> None:
        start = self._start
        if why == "sigquit" and start.over:
            return
        if not start.over or start.over == "sigquit":
            start.over, start.over_line = why, number
            self._cached = None

    def _restart(self, number: int) -> None:
        """A new start begins: the old one becomes an attempt, its finding is kept while the new one says nothing."""
        old = self._start
        if old.over in ("", "sigquit"):
            old.over, old.over_line = "exit", number
        if old.lines and (old.seen or old.phases.seen):
            found = judge.findings(
                old, before=None, attempts=self._attempts, given=self._given, build=self._build, edited=(), closed=True
            )
            slug = found[0].slug if found else ""
            self._attempts = [
                *self._attempts,
                Attempted({**self._given, **old.flags}, slug, found[0].phase if found else self.phase),
            ][-KEPT_STARTS:]
            if found or self._before is None:
                self._before = old
        self._traces = Tracebacks()
        self._start = Start(first=number)
        self._cached = None
