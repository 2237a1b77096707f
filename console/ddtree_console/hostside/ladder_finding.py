"""The ladder's diagnosis: the engine of findings and the stalls behind one face. Pure; times are boottime seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from ddtree_console.domain import stalls
from ddtree_console.domain.findings.types import Evidence, Finding, Remedy
from ddtree_console.domain.secrets import mask, mask_data
from ddtree_console.domain.snapshot import UnitState

if TYPE_CHECKING:
    from ddtree_console.domain.findings.engine import Findings

T = TypeVar("T")

EVIDENCE, REMEDIES, WIDTH = 12, 6, 500
"""lines, ways out and characters a line that travel with a verdict."""
STILL_S = 60.0
"""nothing moves for so long: before that the engine is not told of silence."""
CODES = {"unknown-argument": "exit-arguments", "port-in-use": "cannot-bind"}
EXITS = {1: "exited", 2: "killed", 3: "dumped"}
"""CLD_* of waitid(), which systemd shows as ExecMainCode."""
VAGUE = ("unknown", "peer-rank-died", "benign-warning", "slow-progress")
"""findings of a log that explain less than a stall that was seen."""
SLUGS = {
    "port-taken": "port-in-use",
    "foreign-listener": "port-in-use",
    "gpus-taken": "gpu-occupied",
    "verify-failed": "unit-bad-setting",
}
"""verdict codes that are findings of their own: no log is needed for them."""


def to_event(finding: Finding) -> dict[str, Any]:
    """The finding as it travels: bounded, secrets masked."""
    short = replace(
        finding,
        evidence=tuple(Evidence(e.line, e.text[:WIDTH]) for e in finding.evidence[:EVIDENCE]),
        remedies=finding.remedies[:REMEDIES],
    )
    masked: dict[str, Any] = mask_data(short.to_json())
    return masked


def of_code(code: str, cause: str, next_step: str = "") -> dict[str, Any]:
    """The finding of a failure that was seen directly and not in a log, {} where the code is none."""
    slug = SLUGS.get(code)
    if slug is None:
        return {}
    way_out = (Remedy(next_step[:1].upper() + next_step[1:] + "."),) if next_step else ()
    return to_event(Finding(slug, cause[:1].upper() + cause[1:] + ".", 1.0, True, remedies=way_out, rule=code))


class Diagnosis:
    """Everything that one wait saw, judged. Without an engine only stalls are known.

    The engine only explains: whatever goes wrong in it (a rule of the operator's) must never end a wait, so that its
    first exception takes it out of use, with `broken` saying why.
    """

    def __init__(self, engine: Findings | None, ranks: int = 0) -> None:
        self._engine = engine
        self._stalls = stalls.Stalls(ranks)
        self.look = stalls.Look()
        self.broken = ""
        self._start = stalls.Start()
        self._fatal_since: float | None = None
        self._told: tuple[Any, ...] = ()
        self._last: float | None = None

    def _try(self, call: Callable[[Findings], T], default: T) -> T:
        if self._engine is None:
            return default
        try:
            return call(self._engine)
        except Exception as error:  # see the class
            self._engine = None
            self.broken = f"the engine of findings failed and is not used any more: {type(error).__name__}: {error}"
            return default

    def line(self, now: float, text: str, pid: int = 0, source: str = "") -> None:
        """One journal entry; source: 'systemd' for the manager's own."""
        self._last = now
        self._try(lambda engine: engine.feed(text, t=now, pid=pid or None, source=source), None)

    def unit(self, now: float, state: UnitState) -> None:
        """The unit as it is now."""
        told = (state.active, state.sub, state.result, state.exit_code, state.exit_status, state.restarts)
        if told == self._told:
            return
        self._told = told
        how = EXITS.get(state.exit_code, "")
        status = str(state.exit_status) if how else ""
        self._try(
            lambda engine: engine.unit(state.active, state.sub, state.result, how, status, state.restarts, now), None
        )

    def silence(self, still: float) -> None:
        """Nothing at all moved for so long. After a line that tells of a failure the engine ends the wait by that;
        without one a silence is judged by looks at the processes."""
        last = self._last
        if last is not None and still >= STILL_S and self.verdict() is not None:
            self._try(lambda engine: engine.silence(last + still), None)

    def facts(self, found: stalls.Facts, start: stalls.Start) -> None:
        """A look at the processes."""
        self._start, self.look = start, self._stalls.look(found, start)

    def end(self) -> None:
        """The process is gone and its log was read to the end."""
        self._try(lambda engine: engine.end(), None)

    def fatal_since(self, now: float) -> float | None:
        """When a finding first said that this start is lost; None while none does."""
        found = self.verdict()
        if found is None or not found.fatal:
            self._fatal_since = None
        elif self._fatal_since is None:
            self._fatal_since = now
        return self._fatal_since

    @property
    def armed(self) -> bool:
        """Whether there is an engine to wait for."""
        return self._engine is not None

    def verdict(self) -> Finding | None:
        """Why the start failed."""
        return self._try(lambda engine: engine.verdict(), None)

    def stalled(self, still: float, tail: list[str], lines: int) -> Finding:
        """The stall as a finding; what the log tells comes first where it is an answer already."""
        start, found = replace(self._start, still=still), self.verdict()
        own = stalls.finding(self.look, start, tail, lines, True)
        # why a rank died is in the log where it could still write; that nobody can meet it is a consequence
        asks = own.slug in ("unknown", "stalled-dead-child")
        return replace(found, fatal=True) if asks and found is not None and found.slug not in VAGUE else own

    def badge(self) -> Finding | None:
        """After a start that serves: the first warning that is worth a badge."""
        found: tuple[Finding, ...] = self._try(lambda engine: engine.findings(), ())
        return next((one for one in found if not one.fatal and one.slug != "unknown"), None)


def cause_of(finding: Finding, read: str) -> str:
    """The decisive line: the one that the engine's own reader named where the finding holds it too, else its first."""
    texts = [one.text for one in finding.evidence]
    if read and any(read in text or text in read for text in texts if text.strip()):
        return read
    return next((text.strip() for text in texts if text.strip()), "") or finding.summary


def remedy_text(finding: Finding) -> str:
    """The first way out in one line, '' where none is known."""
    first = finding.remedies[0] if finding.remedies else None
    if first is None:
        return ""
    return mask(f"{first.text} {first.command}".strip() if first.command else first.text)
