"""Feeds the ladder with what is true on this host: unit, journal, listener, HTTP, CPU, reads, GPU memory."""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ddtree_console.domain.engines.base import Engine
from ddtree_console.domain.snapshot import GpuReport
from ddtree_console.domain.stalls import LOCK_SEEN_S
from ddtree_console.hostside import procfs, sockets, unitctl
from ddtree_console.hostside.background import Background
from ddtree_console.hostside.gpus import GpuReader
from ddtree_console.hostside.hostclock import Clock
from ddtree_console.hostside.journal_tail import JournalTail
from ddtree_console.hostside.ladder import Expect, Ladder, exit_of
from ddtree_console.hostside.ladder_http import Questions
from ddtree_console.hostside.roots import Roots
from ddtree_console.hostside.stalls import Looks

if TYPE_CHECKING:
    from ddtree_console.domain.findings.engine import Findings

ROUND_S = 0.1
UNIT_S = 0.25
LISTENER_S = 0.2
SAMPLE_S = 0.5
GPU_S = 3.0
RESUME_S = 1.0


class Due:
    """Something that is done every so many seconds."""

    def __init__(self, every: float) -> None:
        self._every, self._next = every, 0.0

    def now(self, t: float) -> bool:
        """True when its time has come (and starts the next interval)."""
        if t < self._next:
            return False
        self._next = t + self._every
        return True


def gpu_memory(report: GpuReport, gpus: Sequence[int]) -> int | None:
    """Bytes used on those GPUs, None when not all can be read."""
    used = [gpu.used for gpu in report.gpus if gpu.index in gpus]
    known = [value for value in used if value is not None]
    return sum(known) if known and len(known) == len(used) else None


class Wait:
    """One climb of the ladder. run() returns when it has a verdict; `on_round` sees every round (events, requests)."""

    def __init__(
        self, roots: Roots, unit: str, engine: Engine, expect: Expect, gpus: Sequence[int], clock: Clock,
        reader: GpuReader | None = None, findings: Findings | None = None,
    ) -> None:  # fmt: skip
        self.ladder = Ladder(clock.boottime(), expect, engine.reader(), findings)
        self._roots, self._unit, self._gpus, self._clock = roots, unit, tuple(gpus), clock
        self._reader = reader
        self._questions = Questions(roots, engine, self.ladder, expect.port)
        self._tail: JournalTail | None = None
        self._looks = Looks(roots, expect.model)
        self._gpu_work = Background()
        self._gpu_used: int | None = None
        self._gpu_util: int | None = None
        self._unit_due, self._listener_due = Due(UNIT_S), Due(LISTENER_S)
        self._sample_due, self._gpu_due, self._resume_due = Due(SAMPLE_S), Due(GPU_S), Due(RESUME_S)

    @property
    def serves(self) -> str:
        """What answers, asked of the server."""
        return self._questions.serves

    def run(self, on_round: Callable[[], None]) -> None:
        """Until the ladder has a verdict. on_round may raise to end it."""
        try:
            while self.ladder.verdict is None:
                self._round()
                on_round()
                self._sleep()
            self._last_look()
            on_round()
        finally:
            self.close()

    def close(self) -> None:
        """Ends the children; called by run()."""
        if self._tail is not None:
            self._tail.close()
        self._questions.close()
        self._looks.close()
        self._gpu_work.close()

    def _round(self) -> None:
        ladder, t = self.ladder, self._clock.boottime()
        if self._unit_due.now(t) or ladder.lost(t):
            ladder.on_unit(self._clock.boottime(), unitctl.show(self._unit))
        self._read_journal()
        if ladder.ended:
            self._read_rest()
            ladder.finish(self._clock.boottime())
            return
        if ladder.unit.control_group and self._listener_due.now(t):
            state = sockets.listener(self._roots, ladder.expect.port, ladder.unit.control_group, ladder.unit.main_pid)
            ladder.on_listener(self._clock.boottime(), state)
        self._questions.step(self._clock.boottime())
        if self._sample_due.now(t):
            self._sample()
        ladder.tick(self._clock.boottime())

    def _read_journal(self) -> None:
        ladder = self.ladder
        if self._tail is None:
            if not ladder.invocation:
                return
            self._tail = JournalTail(ladder.invocation, only_new=ladder.expect.from_info)
        if self._tail.gone and self._resume_due.now(self._clock.boottime()):
            self._tail.resume()
        for said in self._tail.read():
            ladder.on_line(self._clock.boottime(), *said)

    def _read_rest(self) -> None:
        if self._tail is None and self.ladder.invocation:
            self._tail = JournalTail(self.ladder.invocation)
        if self._tail is not None:
            for said in self._tail.rest():
                self.ladder.on_line(self._clock.boottime(), *said)

    def _last_look(self) -> None:
        """A fatal line may be all that was seen: what the unit did since belongs to the verdict."""
        verdict = self.ladder.verdict
        if verdict is None or verdict.ok or verdict.exit:
            return
        state = unitctl.show(self._unit)
        if state.load and state.invocation == self.ladder.invocation and unitctl.down(state):
            self.ladder.exit_seen(exit_of(state))

    def _sample(self) -> None:
        group, t = self.ladder.unit.control_group, self._clock.boottime()
        self._gpu_used = self._gpu()
        facts = self._looks.take()
        if facts is not None:
            self.ladder.on_facts(t, facts, self._looks.size, self._gpu_util)
        self._looks.ask(t, group, self.ladder.main_pid, t - self.ladder.progress.last_moved >= LOCK_SEEN_S)
        self.ladder.on_sample(
            t,
            procfs.cpu_usec(self._roots, group) if group else None,
            procfs.read_bytes(self._roots, procfs.cgroup_pids(self._roots, group)) if group else None,
            self._gpu_used,
        )

    def _gpu(self) -> int | None:
        if self._reader is None or not self._gpus:
            return None
        done, report = self._gpu_work.poll()
        if done and isinstance(report, GpuReport):
            self._gpu_used = gpu_memory(report, self._gpus)
            busy = [gpu.util for gpu in report.gpus if gpu.index in self._gpus and gpu.util is not None]
            self._gpu_util = max(busy, default=None)
        if not self._gpu_work.busy and self._gpu_due.now(self._clock.boottime()):
            self._gpu_work.start(self._reader.read)
        return self._gpu_used

    def _sleep(self) -> None:
        if self.ladder.verdict is not None:
            return
        wait_on = [self._questions.fileno()]
        if self._tail is not None and self._tail.fileno() >= 0:
            wait_on.append(self._tail.fileno())
        select.select(wait_on, [], [], ROUND_S)
