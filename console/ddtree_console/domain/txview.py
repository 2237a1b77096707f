"""A transaction as its events tell it: a pure fold that the console, the CLI and the watcher share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ddtree_console.domain import events as ev


@dataclass(frozen=True)
class Line:
    """A step, rung or phase. state: run | ok | fail | skip. secs: so far (run) or in all; since: boottime of its start.

    done/total: a real count (graph capture), else None. last_good: seconds of the last good start. detail: one line.
    """

    name: str
    state: str = "run"
    secs: float | None = None
    since: float | None = None
    last_good: float | None = None
    done: int | None = None
    total: int | None = None
    detail: str = ""


@dataclass(frozen=True)
class Verdict:
    """Why a wait ended. code: a word such as unit-failed, foreign-listener, fatal-log, stalled, deadline, requested.

    evidence: raw host lines (not sanitised). exit: result, code, status of the unit where it ended. finding: JSON that
    findings.types.from_json reads, {} where there is none; after a wait that ended well, a warning worth a badge.
    """

    ok: bool
    code: str = ""
    cause: str = ""
    remedy: str = ""
    evidence: tuple[str, ...] = ()
    exit: Mapping[str, Any] = field(default_factory=dict)
    finding: Mapping[str, Any] = field(default_factory=dict)
    """Finding.to_json(); {} where nothing was found. Read it with findings.types.from_json."""


@dataclass(frozen=True)
class Attempt:
    """One start inside a transaction: the trial, then at most the known good and the way back."""

    target: str
    profile: str = ""
    why: str = ""
    steps: tuple[Line, ...] = ()
    rungs: tuple[Line, ...] = ()
    phases: tuple[Line, ...] = ()
    verdict: Verdict | None = None
    invocation: str = ""


@dataclass(frozen=True)
class TxView:
    """The whole transaction. outcome: "" while it runs, else a key of events.OUTCOMES. t: last boottime."""

    tx: str
    what: str = "deploy"
    unit: str = ""
    service: str = ""
    who: str = ""
    reason: str = ""
    source: str = ""
    target: str = ""
    profile: str = ""
    on_failure: str = ""
    deadline: float | None = None
    hold: float | None = None
    began: float = 0.0
    began_wall: float = 0.0
    boot: str = ""
    t: float = 0.0
    attempts: tuple[Attempt, ...] = ()
    drift: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    outcome: str = ""
    serves: str = ""
    detail: str = ""
    moved: float = 0.0
    """boottime of the last progress seen by the host."""
    words: str = ""
    """what the wait sees now: 'loading, 412 MB/s, about 3 min left', 'stuck: ...'; '' when nothing was said."""
    events: int = 0

    @property
    def running(self) -> bool:
        """True until an outcome was recorded."""
        return not self.outcome

    @property
    def attempt(self) -> Attempt | None:
        """The current (last) attempt."""
        return self.attempts[-1] if self.attempts else None


def _put(lines: tuple[Line, ...], new: Line) -> tuple[Line, ...]:
    """`new` in the place of the running line of its name, else appended (phases repeat)."""
    for i in range(len(lines) - 1, -1, -1):
        if lines[i].name == new.name and lines[i].state == "run":
            return (*lines[:i], new, *lines[i + 1 :])
    return (*lines, new)


def _line(event: ev.Event, name: str, lines: tuple[Line, ...]) -> Line:
    data = event.data
    state = str(data.get("state", "run"))
    old = next((x for x in reversed(lines) if x.name == name and x.state == "run"), None)
    since = old.since if old is not None else event.t
    secs = data.get("secs")
    return Line(
        name=name,
        state=state,
        since=since,
        secs=float(secs)
        if isinstance(secs, (int, float))
        else (None if state == "run" else event.t - (since or event.t)),
        last_good=data.get("last_good", old.last_good if old else None),
        done=data.get("done", old.done if old else None),
        total=data.get("total", old.total if old else None),
        detail=str(data.get("detail", old.detail if old else "")),
    )


def fold(view: TxView | None, event: ev.Event) -> TxView:
    """The view after one more event; the first event makes it. Never raises on odd data of a known kind."""
    if view is None:
        view = TxView(tx=event.tx, began=event.t, began_wall=event.wall, boot=event.boot)
    d: Mapping[str, Any] = event.data
    view = replace(view, t=event.t, events=view.events + 1)
    kind = event.kind
    if kind == ev.BEGIN:
        return replace(
            view,
            what=str(d.get("what", "deploy")),
            unit=str(d.get("unit", "")),
            service=str(d.get("service", "")),
            who=str(d.get("who", "")),
            reason=str(d.get("reason", "")),
            source=str(d.get("source", "")),
            target=str(d.get("target", "")),
            profile=str(d.get("profile", "")),
            on_failure=str(d.get("on_failure", "")),
            deadline=d.get("deadline"),
            hold=d.get("hold"),
            attempts=(*view.attempts, Attempt(str(d.get("target", "")), str(d.get("profile", "")))),
        )
    if kind == ev.BACK:
        return replace(
            view,
            attempts=(
                *view.attempts,
                Attempt(str(d.get("target", "")), str(d.get("profile", "")), str(d.get("why", ""))),
            ),
        )
    if kind in (ev.STEP, ev.RUNG, ev.PHASE, ev.VERDICT):
        attempts = view.attempts or (Attempt(""),)
        now = attempts[-1]
        if kind == ev.STEP:
            now = replace(
                now,
                steps=_put(now.steps, _line(event, str(d.get("step", "?")), now.steps)),
                invocation=str(d.get("invocation", now.invocation)),
            )
        elif kind == ev.RUNG:
            now = replace(now, rungs=_put(now.rungs, _line(event, str(d.get("rung", "?")), now.rungs)))
        elif kind == ev.PHASE:
            now = replace(now, phases=_put(now.phases, _line(event, str(d.get("phase", "?")), now.phases)))
        else:
            raw = d.get("evidence")
            exit_, finding = d.get("exit"), d.get("finding")
            now = replace(
                now,
                verdict=Verdict(
                    ok=bool(d.get("ok")),
                    code=str(d.get("code", "")),
                    cause=str(d.get("cause", "")),
                    remedy=str(d.get("remedy", "")),
                    evidence=tuple(str(x) for x in raw) if isinstance(raw, list) else (),
                    exit=exit_ if isinstance(exit_, dict) else {},
                    finding=finding if isinstance(finding, dict) else {},
                ),
            )
        words = "" if kind == ev.VERDICT else view.words
        return replace(view, attempts=(*attempts[:-1], now), words=words)
    if kind == ev.PROGRESS:
        words = str(d.get("words", view.words))
        return replace(view, moved=event.t, deadline=d.get("deadline", view.deadline), words=words)
    if kind == ev.DRIFT:
        return replace(view, drift=(*view.drift, (str(d.get("flag")), str(d.get("asked")), str(d.get("effective")))))
    if kind == ev.REQUEST:
        return replace(
            view, requests=(*view.requests, str(d.get("request", ""))), deadline=d.get("deadline", view.deadline)
        )
    if kind == ev.OUTCOME:
        return replace(
            view, outcome=str(d.get("state", "?")), serves=str(d.get("serves", "")), detail=str(d.get("detail", ""))
        )
    text = str(d.get("text", "")) if kind == ev.NOTE else event.line()
    return replace(view, notes=(*view.notes[-49:], text))


def fold_all(stream: Iterable[ev.Event], view: TxView | None = None) -> TxView | None:
    """The view after all events of one transaction, in order; None for none."""
    for event in stream:
        view = fold(view, event)
    return view
