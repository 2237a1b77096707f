"""What every part of a transaction shares: the plan, the event log, the mark in /run, requests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddtree_console.domain import events as ev
from ddtree_console.domain.plan import Candidate, Plan
from ddtree_console.domain.secrets import mask as mask_secrets
from ddtree_console.domain.txview import Verdict
from ddtree_console.hostside import mark, procfs, requests
from ddtree_console.hostside.eventlog import EventLog
from ddtree_console.hostside.hostclock import Clock
from ddtree_console.hostside.locks import Held
from ddtree_console.hostside.roots import Roots
from ddtree_console.hostside.unitctl import Refused

if TYPE_CHECKING:
    from ddtree_console.hostside.gpus import GpuReader
    from ddtree_console.hostside.ladder import Ladder


class Requested(Exception):
    """An operator wants to go elsewhere. to: way-back | known-good | rN | leave (abandon)."""

    def __init__(self, to: str, who: str) -> None:
        super().__init__(f"requested by {who or 'an operator'}")
        self.to, self.who = to, who


@dataclass(frozen=True)
class Target:
    """Something to start. key: how the plan calls it (new, known-good, way-back, rN, service).

    committed: it is what /etc holds, so that it needs no trial. name: for events.
    """

    key: str
    name: str
    profile: str
    candidate: Candidate
    committed: bool = False


@dataclass(frozen=True)
class Served:
    """How a wait ended. serves: what answers. secs: of each rung and phase. invocation, main_pid: of what held.

    values: figures that the log told, by the reader's names.
    """

    verdict: Verdict
    serves: str = ""
    secs: tuple[tuple[str, float], ...] = ()
    invocation: str = ""
    main_pid: int = 0
    values: tuple[tuple[str, Any], ...] = ()


class Tx:
    """One transaction (or its recovery) of one slot."""

    def __init__(self, roots: Roots, plan: Plan, tx: str, clock: Clock, began: mark.Mark | None = None) -> None:
        self.roots, self.plan, self.unit, self.clock, self.id = roots, plan, plan.unit, clock, tx
        self.log = EventLog(roots, plan.unit, tx, clock)
        self.mark = began or mark.Mark(
            tx=tx, boot=procfs.boot_id(roots), began=clock.boottime(), began_wall=clock.wall()
        )
        self.locks: Held | None = None
        self.ladder: Ladder | None = None
        self.extra = 0.0
        """seconds by which deadlines to come were extended."""
        self.going = self.mark.requested
        """where the transaction is going now; '' for the release on trial."""
        self.fast = plan.what == "rollback"
        self._gpus: GpuReader | None = None

    def emit(self, kind: str, **data: Any) -> None:
        """One event."""
        self.log.emit(kind, **data)

    def note(self, text: str) -> None:
        """A line for the operator."""
        self.emit(ev.NOTE, text=mask_secrets(text))

    def remember(self, **new: Any) -> None:
        """Changes the mark."""
        self.mark = mark.change(self.roots, self.unit, self.mark, **new)

    @contextlib.contextmanager
    def step(self, name: str, **first: Any) -> Iterator[dict[str, Any]]:
        """A step around its work; what is put into the yielded dict goes with its end."""
        began = self.clock.boottime()
        data: dict[str, Any] = {}
        self.emit(ev.STEP, step=name, state="run", **first)
        try:
            yield data
        except (Refused, Requested) as error:
            secs = round(self.clock.boottime() - began, 3)
            self.emit(ev.STEP, step=name, state="fail", secs=secs, detail=mask_secrets(str(error)))
            raise
        state = data.pop("state", "ok")
        self.emit(ev.STEP, step=name, state=state, secs=round(self.clock.boottime() - began, 3), **data)

    def verdict(self, code: str, cause: str, remedy: str = "", **more: Any) -> None:
        """Why it ended here, for a failure outside the ladder."""
        from ddtree_console.hostside.ladder_finding import (
            of_code,
        )  # only for a failure: a way back must not wait for it

        found = of_code(code, mask_secrets(cause), remedy)
        data = {"evidence": [], "exit": {}, **({"finding": found} if found else {}), **more}
        data["evidence"] = [mask_secrets(line) for line in data["evidence"]]
        self.emit(ev.VERDICT, ok=False, code=code, cause=mask_secrets(cause), remedy=remedy, **data)

    def gpus(self) -> GpuReader | None:
        """The GPU reader, started when first needed; None for a slot without GPUs."""
        if self._gpus is None and self.plan.gpus:
            from ddtree_console.hostside.gpus import GpuReader  # its start costs; a way back must not wait for it

            self._gpus = GpuReader(self.roots)
        return self._gpus

    def close(self) -> None:
        """Frees locks and children."""
        if self._gpus is not None:
            self._gpus.close()
            self._gpus = None
        if self.locks is not None:
            self.locks.release()
            self.locks = None

    def check_requests(self) -> None:
        """Answers a pending request; Requested when it sends the transaction elsewhere."""
        request = requests.pending(self.roots, self.unit, self.id)
        if request is None:
            return
        if request.request == "extend":
            self._extend(request)
        elif request.request == "confirm":
            if self.ladder is not None and self.ladder.confirm(self.clock.boottime()):
                self._answer(request)
            else:
                self._answer(request, "refused", "no token was generated yet: there is nothing to confirm")
        else:
            self._elsewhere(request)

    def _answer(self, request: requests.Request, state: str = "acknowledged", cause: str = "", **data: Any) -> None:
        with contextlib.suppress(OSError):
            requests.answer(self.roots, self.unit, request, state, cause)
        self.emit(ev.REQUEST, request=request.request, who=request.who, state=state, **data)

    def _extend(self, request: requests.Request) -> None:
        seconds = self.plan.deadline / 2
        self.extra += seconds
        deadline: dict[str, Any] = {}
        if self.ladder is not None:
            deadline = {"deadline": round(self.ladder.progress.extend(seconds), 3)}
        self._answer(request, **deadline)

    def _elsewhere(self, request: requests.Request) -> None:
        to = "leave" if request.request == "abandon" else (request.to or "way-back")
        if self.going == to:
            self._answer(request)
            return
        self.going, self.fast = to, True
        # The mark first: whoever reads it after a SIGKILL must know what was promised.
        self.remember(requested=to)
        self._answer(request)
        raise Requested(to, request.who)
