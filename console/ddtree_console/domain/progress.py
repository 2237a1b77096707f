"""Silence is not failure: a phase's deadline runs only while nothing moves. Pure; times are boottime seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Seconds without any movement after which a phase counts as stalled.
PHASE_LIMITS: Mapping[str, float] = {
    "imports": 120.0,
    "arguments": 120.0,
    "distributed": 120.0,
    "weights": 300.0,
    "kv cache": 120.0,
    "graphs": 600.0,
    "piecewise graphs": 600.0,
    "warm-up": 120.0,
}
DEFAULT_LIMIT = 300.0
BUSY = 0.05
"""share of one core above which CPU time counts as movement."""
CPU_WINDOW = 0.5
"""seconds over which CPU time is measured at least: a shorter window is noise."""
GPU_NOISE = 1 << 20
"""bytes: drivers move less than this by themselves."""


def limit_of(phase: str, limits: Mapping[str, float] = PHASE_LIMITS) -> float:
    """Seconds of no movement allowed in a phase; a draft's phase has its target's limit."""
    name = phase[len("draft ") :] if phase.startswith("draft ") else phase
    return limits.get(phase, limits.get(name, DEFAULT_LIMIT))


@dataclass(frozen=True)
class Progress:
    """After one sample. moved: which of log, cpu, io, gpu moved since the last one. stall_at: when a stall would be
    declared, None while something moves. stalled, over: the phase's, the total deadline has passed."""

    moved: tuple[str, ...] = ()
    stall_at: float | None = None
    stalled: bool = False
    over: bool = False


class ProgressClock:
    """Feed it what was read of the unit; it says whether the start moves, stalls, or took too long in all."""

    def __init__(self, deadline_total: float, started: float, limits: Mapping[str, float] = PHASE_LIMITS) -> None:
        self.deadline = started + deadline_total
        """when the total deadline passes."""
        self.last_moved = started
        self._limits = limits
        self._phase: str | None = None
        self._lines: int | None = None
        self._read: int | None = None
        self._gpu: int | None = None
        self._cpu: tuple[float, int] | None = None

    def extend(self, seconds: float) -> float:
        """Moves the total deadline; returns the new one."""
        self.deadline += max(0.0, seconds)
        return self.deadline

    def _cpu_moved(self, t: float, usec: int | None, phase: str) -> bool:
        """Whether the unit used more than BUSY of a core; never in distributed init, where a hang spins."""
        if usec is None or phase == "distributed":
            self._cpu = None
            return False
        if self._cpu is None or usec < self._cpu[1] or t < self._cpu[0]:
            self._cpu = (t, usec)
            return False
        seconds = t - self._cpu[0]
        if seconds >= CPU_WINDOW:
            busy = (usec - self._cpu[1]) / 1e6 > BUSY * seconds
            self._cpu = (t, usec)
            return busy
        return False

    def sample(
        self,
        t: float,
        *,
        lines: int | None = None,
        cpu_usec: int | None = None,
        read_bytes: int | None = None,
        gpu_memory: int | None = None,
        phase: str = "",
    ) -> Progress:
        """One look at the unit: log lines so far, CPU time of its cgroup, bytes read by its processes, bytes of GPU
        memory in use on its GPUs; None = not known now. The first sample is only the base of the next."""
        moved: list[str] = []
        if lines is not None:
            if self._lines is not None and lines > self._lines:
                moved.append("log")
            self._lines = lines
        if self._cpu_moved(t, cpu_usec, phase):
            moved.append("cpu")
        if read_bytes is not None:
            # a process that ended takes its bytes with it: less than before is a new base, not movement
            if self._read is not None and read_bytes > self._read:
                moved.append("io")
            self._read = read_bytes
        if gpu_memory is not None and (self._gpu is None or abs(gpu_memory - self._gpu) >= GPU_NOISE):
            if self._gpu is not None:
                moved.append("gpu")
            self._gpu = gpu_memory
        if moved or self._phase is None or phase != self._phase:
            self.last_moved = max(t, self.last_moved)
        self._phase = phase
        over = t >= self.deadline
        if moved:
            return Progress(tuple(moved), None, False, over)
        stall_at = self.last_moved + limit_of(phase, self._limits)
        return Progress((), stall_at, t >= stall_at, over)
