"""The log's part of the ladder: phases with their times, and what ends a wait. Pure; times are boottime seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ddtree_console.domain import events as ev
from ddtree_console.domain.engines.base import LogFact, LogReader
from ddtree_console.domain.stalls import Start

BAR_S = 0.2
"""a bar is reported at most that often, but for its end."""
WRAPPER_S = 2.0
"""after a line that only wraps a cause the process ends by itself; one that does not is given up after this."""


class Emit(NamedTuple):
    """An event to be written."""

    kind: str
    data: dict[str, Any]


@dataclass
class _Phase:
    since: float
    done: int | None = None
    total: int | None = None
    detail: str = ""
    told: float = 0.0


class LogSide:
    """Feeds one invocation's log to the engine's reader and keeps what it says."""

    def __init__(self, reader: LogReader, last_good: Mapping[str, float]) -> None:
        self.reader = reader
        self.lines = 0
        self.ready = False
        self.fatal: tuple[float, str, str] | None = None
        """(when, code, decisive line) of the first fatal fact."""
        self.wrapped: float | None = None
        self.secs: dict[str, float] = {}
        self.seen: list[str] = []
        """phases that began, in order."""
        self.values: dict[str, Any] = {}
        self.arguments: dict[str, Any] = {}
        """effective flags as the server logged them, dash names."""
        self.capped = ""
        """the line in which the server says that it admits fewer requests than it was asked to."""
        self.tail: list[str] = []
        self._open: dict[str, _Phase] = {}
        self._last_good = last_good

    @property
    def phase(self) -> str:
        """The phase that began last and runs still, '' for none."""
        return list(self._open)[-1] if self._open else ""

    def started(self, now: float, still: float, size: int, util: int | None) -> Start:
        """What is under way, for domain.stalls: still, size and util as there."""
        name = self.phase
        if not name:
            return Start(still=still, size=size, util=util)
        phase = self._open[name]
        good = self._last_good.get(name)
        return Start(name, now - phase.since, good, phase.done, phase.total, still, size, util)

    def feed(self, now: float, text: str) -> list[Emit]:
        """Events of one journal entry."""
        self.lines += 1
        if text.strip():
            self.tail = [*self.tail[-4:], text]
        emits: list[Emit] = []
        for fact in self.reader.feed(text):
            emits += self._fact(now, fact)
        return emits

    def _fact(self, now: float, fact: LogFact) -> list[Emit]:
        if fact.kind == "phase":
            return self._ended(now, fact) if fact.state == "ok" else self._began(now, fact)
        if fact.kind == "bar":
            return self._bar(now, fact)
        if fact.kind == "ready":
            self.ready = True
        elif fact.kind == "fatal" and self.fatal is None:
            self.fatal = (now, fact.name, fact.text)
        elif fact.kind == "wrapper" and self.wrapped is None:
            self.wrapped = now
        elif fact.kind == "value":
            self.values[fact.name] = fact.value
        elif fact.kind == "arguments" and isinstance(fact.value, dict):
            self.arguments = fact.value
        elif fact.kind == "warning" and fact.name == "capped" and "running" in fact.text:
            self.capped = fact.text
        return []

    def _emit(self, name: str, state: str, phase: _Phase, secs: float | None = None) -> Emit:
        data: dict[str, Any] = {"phase": name, "state": state}
        for key, value in (("done", phase.done), ("total", phase.total), ("secs", secs)):
            if value is not None:
                data[key] = round(value, 3) if isinstance(value, float) else value
        if name in self._last_good:
            data["last_good"] = self._last_good[name]
        if phase.detail:
            data["detail"] = phase.detail
        return Emit(ev.PHASE, data)

    def _began(self, now: float, fact: LogFact) -> list[Emit]:
        phase = self._open.get(fact.name)
        if phase is None:
            phase = self._open[fact.name] = _Phase(now)
            self.seen.append(fact.name)
        elif not fact.text or fact.text == phase.detail:
            return []
        phase.detail = fact.text or phase.detail
        return [self._emit(fact.name, "run", phase)]

    def _ended(self, now: float, fact: LogFact) -> list[Emit]:
        phase = self._open.pop(fact.name, None)
        if phase is None:
            phase = _Phase(now)
            if fact.name not in self.seen:
                self.seen.append(fact.name)
        phase.detail = fact.text or phase.detail
        if phase.total is not None:
            phase.done = phase.total
        secs = now - phase.since
        self.secs[fact.name] = round(self.secs.get(fact.name, 0.0) + secs, 3)
        return [self._emit(fact.name, "ok", phase, secs)]

    def _bar(self, now: float, fact: LogFact) -> list[Emit]:
        phase = self._open.get(fact.name)
        if phase is None:
            phase = self._open[fact.name] = _Phase(now)
            self.seen.append(fact.name)
        changed = (fact.done, fact.total, fact.text) != (phase.done, phase.total, phase.detail)
        phase.done, phase.total, phase.detail = fact.done, fact.total, fact.text or phase.detail
        if not changed or (now - phase.told < BAR_S and fact.done != fact.total):
            return []
        phase.told = now
        return [self._emit(fact.name, "run", phase)]

    def fail_open(self, now: float) -> list[Emit]:
        """What still ran when the wait failed, as failed."""
        emits = [self._emit(name, "fail", phase, now - phase.since) for name, phase in self._open.items()]
        self._open.clear()
        return emits

    def dying(self, now: float) -> bool:
        """Whether a wrapper line was read and the process had its time to end."""
        return self.wrapped is not None and now - self.wrapped >= WRAPPER_S

    def cause(self) -> tuple[str, str, tuple[str, ...]]:
        """(what decided, cause, evidence): the reader's, else the decisive line, else the last lines."""
        code, cause, evidence = self.reader.cause()
        if cause:
            return code, cause, tuple(evidence)
        if self.fatal is not None:
            return self.fatal[1], self.fatal[2], (self.fatal[2],)
        return "", "", tuple(self.tail)
