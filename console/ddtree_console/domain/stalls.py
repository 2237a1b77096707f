"""Moving, slow or stuck: what a start does while its log says nothing. Pure; seconds, bytes, boottime.

Silence is not failure. What is compared: the last good start, CPU, bytes read, compilers at work, the ranks that live
against those that were asked for, locks of just-in-time compilers. Limits are those of domain.progress, but for two
causes that never heal: a dead rank and a lock that nobody holds.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ddtree_console.domain.findings.types import Edit, Evidence, Finding, Remedy

DEAD_SEEN_S, DEAD_LIMIT_S = 2.0, 30.0
"""a rank that is gone is told after the first: its parent may be about to say why. The second ends the wait."""
LOCK_SEEN_S, LOCK_LIMIT_S = 5.0, 60.0
QUIET_S = 15.0
IO_S = 30.0
MEET_S = 60.0
BUSY = 5
"""percent of use that a GPU's housekeeping does not reach."""
SLOW_TIMES, SLOW_S = 2.0, 60.0
"""a phase counts as slow beyond so many times its last good time, and not before so many seconds."""
RATE_S = 2.0
MB = 1e6


class Proc(NamedTuple):
    """A process of the unit. state: one letter of /proc/PID/stat. rank: of a scheduler, '?' where a dead one does not
    tell it any more, '' for any other process."""

    pid: int
    name: str = ""
    state: str = "S"
    rank: str = ""
    compiler: bool = False


class Lock(NamedTuple):
    """A lock file of a just-in-time compiler. pid: who holds it or left it, 0 where that is not known."""

    path: str
    pid: int = 0
    alive: bool = False


@dataclass(frozen=True)
class Facts:
    """What the host says. read: bytes read by its processes so far; None where nothing can be said."""

    t: float
    procs: tuple[Proc, ...] = ()
    read: int | None = None
    locks: tuple[Lock, ...] = ()


@dataclass(frozen=True)
class Start:
    """What the ladder knows. elapsed: in this phase; good: its seconds in the last good start; done, total: of a bar;
    still: since anything moved (line, CPU, reads, GPU memory); size: bytes of the weights, 0 where not known; util: the
    busiest GPU's use in percent, None where not known."""

    phase: str = ""
    elapsed: float = 0.0
    good: float | None = None
    done: int | None = None
    total: int | None = None
    still: float = 0.0
    size: int = 0
    util: int | None = None


@dataclass(frozen=True)
class Look:
    """words: one short line. slug: of the taxonomy, '' while all is well. over: a stall that cannot heal."""

    words: str = ""
    slug: str = ""
    over: bool = False
    path: str = ""
    rank: str = ""


def duration(seconds: float) -> str:
    """40 s, 3 min, 1 h 10 min."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class Stalls:
    """One start. Feed a look every few seconds. ranks: schedulers that were asked for, 0 where not known."""

    def __init__(self, ranks: int = 0) -> None:
        self._ranks = ranks
        self._rank_of: dict[int, str] = {}
        self._dead_since: float | None = None
        self._phase = ""
        self._base: tuple[float, int] | None = None
        self._rate: float | None = None
        self._read_in_phase = 0
        self._no_bytes_since: float | None = None

    def look(self, facts: Facts, start: Start) -> Look:
        """What it does now, in words, and whether that is a stall."""
        self._reads(facts, start.phase)
        for found in (self._dead(facts), self._lock(facts, start)):
            if found is not None:
                return found
        compilers = [p.name for p in facts.procs if p.compiler]
        if compilers:
            names = ", ".join(dict.fromkeys(compilers))
            return self._slow(start, f"compiling kernels ({names})", start.good)
        if start.phase.endswith("weights"):
            return self._loading(facts, start)
        if start.phase == "distributed":
            return self._meeting(facts, start)
        return self._other(start)

    # -- one kind of stall each

    def _dead(self, facts: Facts) -> Look | None:
        for p in facts.procs:
            if p.rank and (p.rank != "?" or p.pid not in self._rank_of):
                self._rank_of[p.pid] = p.rank
        lives = {p.pid for p in facts.procs if p.state not in "ZX"}
        alive = {rank for pid, rank in self._rank_of.items() if pid in lives}
        dead = sorted({rank for pid, rank in self._rank_of.items() if pid not in lives} - alive)
        if not dead or not lives:
            self._dead_since = None
            return None
        self._dead_since = facts.t if self._dead_since is None else self._dead_since
        gone = facts.t - self._dead_since
        if gone < DEAD_SEEN_S:
            return None
        waits = f"rank {', '.join(sorted(alive))} waits" if alive else "the main process waits"
        words = f"stuck: rank {', '.join(dead)} died, {waits}".replace("rank ? died", "a rank died")
        return Look(words, "stalled-dead-child", gone >= DEAD_LIMIT_S, rank=dead[0])

    def _lock(self, facts: Facts, start: Start) -> Look | None:
        busy = any(p.compiler or p.state in "RD" for p in facts.procs)
        if not facts.locks or busy or start.still < LOCK_SEEN_S or start.phase in ("distributed", "weights"):
            return None
        lock = min(facts.locks, key=lambda one: one.alive)
        if lock.alive:
            words = f"waits for a lock that pid {lock.pid} holds"
            return Look(words, "stalled-lock" if start.still >= LOCK_LIMIT_S else "", path=lock.path)
        left = f"left by pid {lock.pid}" if lock.pid else "that nobody holds"
        return Look(f"stuck: waits for a lock {left}", "stalled-lock", start.still >= LOCK_LIMIT_S, path=lock.path)

    def _loading(self, facts: Facts, start: Start) -> Look:
        silent = 0.0 if self._no_bytes_since is None else facts.t - self._no_bytes_since
        if silent >= IO_S and start.still >= IO_S:
            waiting = sum(p.state == "D" for p in facts.procs)
            who = f", {waiting} {'process waits' if waiting == 1 else 'processes wait'} in it" if waiting else ""
            return Look(f"stuck: storage delivers nothing for {duration(silent)}{who}", "stalled-io")
        rate = "" if self._rate is None else f", {self._rate / MB:,.0f} MB/s"
        return self._slow(start, f"loading{rate}", self._left(start))

    def _meeting(self, facts: Facts, start: Start) -> Look:
        there = sum(bool(p.rank) and p.state not in "ZX" for p in facts.procs)
        of = f"{there} of {self._ranks} ranks" if self._ranks else f"{there} ranks"
        if start.elapsed >= max(MEET_S, 3 * (start.good or 0.0)):
            if self._ranks and 0 < there < self._ranks:
                words = f"stuck: only {of} came"
            else:
                words = f"stuck: {of} wait for one another for {duration(start.elapsed)}"
            return Look(words, "stalled-rendezvous")
        return Look(f"{of} meet" if there else "")

    def _other(self, start: Start) -> Look:
        what = {"imports": "importing", "warm-up": "warming up"}.get(start.phase, "")
        if "graphs" in start.phase:
            what = "capturing graphs"
            if start.total:
                what += f", {start.done or 0} of {start.total}"
        if start.still >= QUIET_S:
            good = f", the last good start took {duration(start.good)}" if start.good else ""
            busy = f", GPU {start.util} % busy" if start.util is not None and start.util >= BUSY else ""
            return Look(f"quiet for {duration(start.still)}{busy}{good}")
        return self._slow(start, what, self._left(start)) if what else Look()

    # -- rates and times

    def _reads(self, facts: Facts, phase: str) -> None:
        if phase != self._phase:
            self._phase, self._base, self._rate, self._read_in_phase = phase, None, None, 0
            self._no_bytes_since = None
        if facts.read is None:
            return
        if self._base is None:
            self._base = (facts.t, facts.read)
            return
        seconds, read = facts.t - self._base[0], facts.read - self._base[1]
        if seconds < RATE_S:
            return
        self._read_in_phase += max(0, read)
        self._base = (facts.t, facts.read)
        rate = max(0, read) / seconds
        # bytes of pipes and event loops are no reading
        idle = rate < 0.1 * MB
        self._no_bytes_since = None if not idle else self._no_bytes_since or facts.t - seconds
        self._rate = rate if self._rate is None else 0.5 * self._rate + 0.5 * rate

    def _left(self, start: Start) -> float | None:
        """Seconds left: by a bar's own pace, by bytes, else by the last good start; None where nothing tells."""
        if start.done and start.total and start.total > start.done:
            return start.elapsed / start.done * (start.total - start.done)
        if start.size and self._rate and self._rate > MB and start.phase == "weights":
            return max(0.0, start.size - self._read_in_phase) / self._rate
        return start.good - start.elapsed if start.good else None

    def _slow(self, start: Start, words: str, left: float | None) -> Look:
        slow = start.good is not None and start.elapsed >= max(SLOW_S, SLOW_TIMES * start.good)
        if left is not None and left >= 1 and not words.startswith("compiling"):
            words += f", about {duration(left)} left"
        if slow and start.good:
            return Look(f"{words}, slow: the last good start took {duration(start.good)}", "slow-progress")
        return Look(words)


_MEANING = {
    "stalled-dead-child": "a rank of the server died and the others wait for it",
    "stalled-lock": "the start waits for the lock of a compilation that does not go on",
    "stalled-io": "the storage that holds the model delivers nothing",
    "stalled-rendezvous": "the ranks wait for one another and do not meet",
}


def finding(look: Look, start: Start, tail: Sequence[str], lines: int, fatal: bool) -> Finding:
    """The stall as a finding. tail: the newest log lines; lines: how many were read; fatal: the wait ends by it."""
    slug = look.slug if look.slug in _MEANING else "unknown"
    words = look.words.partition("stuck: ")[2] or look.words
    where = f" in {start.phase}" if start.phase else ""
    if slug == "unknown":
        summary = f"Nothing moved for {duration(start.still)}{where}: no log line, CPU, reads or GPU memory."
    else:
        summary = f"It is stuck{where}: {_MEANING[slug]} ({words})."
    evidence = tuple(Evidence(max(0, lines - len(tail) + 1 + i), text) for i, text in enumerate(tail))
    certain = {"stalled-dead-child": 0.9, "stalled-lock": 0.8}.get(slug, 0.6 if slug != "unknown" else 0.2)
    return Finding(
        slug=slug,
        summary=summary,
        confidence=certain,
        fatal=fatal,
        evidence=evidence[-3:],
        remedies=_remedies(slug, look),
        phase=start.phase,
        rule=f"stall:{slug}",
    )


def _remedies(slug: str, look: Look) -> tuple[Remedy, ...]:
    if slug == "stalled-lock":
        path = shlex.quote(look.path)
        if "holds" in look.words and "nobody" not in look.words:
            return (Remedy("Wait for the process that compiles, or end it.", command=f"fuser -v {path}"),)
        return (Remedy("Remove the lock, then start again: nobody holds it.", command=f"rm -f {path}"),)
    if slug == "stalled-dead-child":
        return (
            Remedy(f"Look at what rank {look.rank} wrote last and whether the kernel killed it for memory.",
                   command="journalctl -k -b --grep 'Killed process|oom-kill|segfault'"),
        )  # fmt: skip
    if slug == "stalled-io":
        return (
            Remedy("Look at the storage that holds the model: the kernel says what it waits for.",
                   command="journalctl -k -n 50"),
        )  # fmt: skip
    if slug == "stalled-rendezvous":
        return (
            Remedy("Let NCCL say which rank is missing, and over which interface it asks.",
                   (Edit("env", "NCCL_DEBUG", "set", "INFO"),)),
        )  # fmt: skip
    return ()
