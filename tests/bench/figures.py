"""Each figure of `make bench`: what was measured, its bound, and whether it held."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import median

from tests.bench.pty_program import PtyProgram
from tests.bench.streams import Streams

CONSOLE = [sys.executable, "-m", "ddtree_console.cli"]
BARE = [sys.executable, str(Path(__file__).with_name("bare_app.py"))]
LIVE_S = 30.0


@dataclass(frozen=True)
class Figure:
    """One line of the table. bound: at most that much, in the same unit; held: whether it is kept."""

    name: str
    value: float
    bound: float
    unit: str
    note: str = ""

    @property
    def held(self) -> bool:
        """Within the bound."""
        return self.value <= self.bound

    def line(self) -> str:
        """A table row."""
        mark = "ok  " if self.held else "OVER"
        return f"{mark}  {self.name:<58} {self.value:>9.2f} {self.unit:<9} at most {self.bound:g}   {self.note}"


def p95(values: Sequence[float]) -> float:
    """The 95th percentile of at least one value."""
    return sorted(values)[ceil(len(values) * 0.95) - 1]


def _first(argv: Sequence[str], env: dict[str, str], pattern: str) -> float:
    with PtyProgram(argv, env) as program:
        return program.wait_for(pattern) - program.started


def first_frame(rounds: int = 9) -> list[Figure]:
    """The console's first frame against a bare Textual app's, alternating, medians."""
    with Streams(Path(tempfile.mkdtemp(prefix="bench-")), 4) as streams:
        ours: list[float] = []
        bare: list[float] = []
        for argv, pattern in ((BARE, "BARE"), ([*CONSOLE, "--fleet", str(streams.fleet)], "FLEET")):
            _first(argv, streams.env, pattern)  # leaves bytecode, and the files in memory
        for _ in range(rounds):
            bare.append(_first(BARE, streams.env, "BARE"))
            ours.append(_first([*CONSOLE, "--fleet", str(streams.fleet)], streams.env, "FLEET"))
    note = f"{median(ours) * 1000:.0f} ms / {median(bare) * 1000:.0f} ms"
    return [Figure("first frame, times a bare app's", median(ours) / median(bare), 1.25, "x", note)]


@contextmanager
def _console(hosts: int, rate: float = 0.0) -> Iterator[tuple[Streams, PtyProgram]]:
    """The console in a terminal of 160x48 over that many streaming hosts."""
    with (
        Streams(Path(tempfile.mkdtemp(prefix="bench-")), hosts, rate) as streams,
        PtyProgram([*CONSOLE, "--fleet", str(streams.fleet)], streams.env) as program,
    ):
        yield streams, program


def _live(program: PtyProgram, hosts: int) -> None:
    """Waits until every host's row shows what its watcher said."""
    for n in range(1, min(hosts, 8) + 1):
        program.wait_for(rf"h{n:02}\s+sglang\s+\S+ (starting|ready|degraded)", LIVE_S)


def idle(seconds: float = 20.0) -> list[Figure]:
    """Four live hosts, nobody touches a key: CPU, memory, bytes to the terminal."""
    with _console(4) as (_, program):
        _live(program, 4)
        program.pump(5)
        cpu, written = program.cpu_seconds(), len(program.raw)
        program.pump(seconds)
        return [
            Figure("idle, 4 live hosts: CPU", (program.cpu_seconds() - cpu) / seconds * 100, 3, "% core"),
            Figure("idle, 4 live hosts: memory", program.memory_mib(), 80, "MiB"),
            Figure("idle, 4 live hosts: to the terminal", (len(program.raw) - written) / seconds / 1000, 2, "kB/s"),
        ]


FILTER, HELP = ("/", "filter: words"), ("?", " HELP[\\s\\S]*STATES|29 +something")
"""a key that stays on the screen, one that opens another; each with what shows that it was answered"""


def _times(program: PtyProgram, key: tuple[str, str], rounds: int) -> list[float]:
    """Seconds from the key to its answer on the screen; the first press, which loads code, is left out."""
    times = []
    for _ in range(rounds + 1):
        began = time.monotonic()
        since = program.send(key[0])
        times.append(program.wait_for(key[1], 10, since) - began)
        program.pump(0.2)
        program.send("\x1b")
        program.pump(0.4)
    return times[1:]


def _key(program: PtyProgram, what: str, rounds: int) -> Figure:
    times = _times(program, FILTER, rounds)
    return Figure(f"{what}: a key, p95", p95(times) * 1000, 50, "ms", f"median {median(times) * 1000:.0f}")


def calm(rounds: int = 40) -> list[Figure]:
    """Keys with four live hosts and a quiet journal; a screen that opens, beside a bare app's."""
    with _console(4) as (streams, program):
        _live(program, 4)
        key = _key(program, "4 hosts", rounds)
        ours = _times(program, HELP, rounds)
        with PtyProgram(BARE, streams.env) as bare:
            bare.wait_for("BARE")
            bare.pump(1)
            yardstick = _times(bare, HELP, rounds)
    note = f"median {median(ours) * 1000:.0f}; a bare app: {p95(yardstick) * 1000:.0f}, {median(yardstick) * 1000:.0f}"
    return [key, Figure("4 hosts: a key that opens a screen, p95", p95(ours) * 1000, 50, "ms", note)]


def flood(rate: float = 10_000, rounds: int = 40) -> list[Figure]:
    """One journal at 10,000 lines a second in full view. That every line is shown or counted is a test of tests/ui."""
    with _console(1, rate) as (streams, program):
        _live(program, 1)
        program.send("l")
        program.pump(1)
        streams.go()
        program.wait_for(r"#token: \d+", LIVE_S)
        cpu, began = program.cpu_seconds(), time.monotonic()
        key = _key(program, "10,000 journal lines/s", rounds)
        used = (program.cpu_seconds() - cpu) / (time.monotonic() - began) * 100
    return [key, Figure("10,000 journal lines/s: CPU of the console", used, 100, "% core")]


def sixty(seconds: float = 20.0, rounds: int = 40) -> list[Figure]:
    """Sixty live hosts with ten journal lines a second each: CPU and keys."""
    with _console(60, 10) as (streams, program):
        _live(program, 60)
        streams.go()
        program.pump(8)
        cpu = program.cpu_seconds()
        program.pump(seconds)
        used = (program.cpu_seconds() - cpu) / seconds * 100
        memory = f"{program.memory_mib():.0f} MiB"
        key = _key(program, "sixty hosts", rounds)
    return [Figure("sixty hosts: CPU of the console", used, 30, "% core", memory), key]
