"""Decoding of prompts in several ways, side by side: prompts outside, ways inside, so that noise meets all alike."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from ddtree_kernels.decode.engine import Counts, Engine, reserve
from ddtree_kernels.decode.graphs import Captured, capture
from ddtree_kernels.decode.round import STAGES, Round
from ddtree_kernels.decode.sampling import Sampling
from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.models import Cache
from ddtree_kernels.models.api import Pair

CPU_CLOCK = time.process_time
"""On a CPU with one thread: seconds of this process alone, whatever else the machine does meanwhile."""


@dataclass
class Tally:
    """Of one way over some prompts. seconds: from an answer's first token to its last, so prompts do not count.
    stages: seconds by stage, on a CPU. graph: seconds inside captured rounds, where they were timed.
    passes: seconds by repeat.
    other: answers that differ from the first way's, and of how many tokens the common beginning was."""

    tokens: int = 0
    seconds: float = 0.0
    counts: Counts = field(default_factory=Counts)
    stages: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    graph: float = 0.0
    passes: list[float] = field(default_factory=list)
    other: list[int] = field(default_factory=list)

    @property
    def speed(self) -> float:
        """Tokens a second; 0 before the first."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def round_ms(self) -> float:
        """Milliseconds a round, gap included."""
        return 1000 * self.seconds / max(1, self.counts.rounds)

    def stage_ms(self, name: str) -> float:
        """Milliseconds of one stage a round; `gap` is what no stage accounts for."""
        known = sum(self.stages.values())
        seconds = self.seconds - known if name == "gap" else self.stages[name]
        return 1000 * seconds / max(1, self.counts.rounds)

    @property
    def graph_ms(self) -> float:
        """Milliseconds of a captured round between two events, where they were timed."""
        return 1000 * self.graph / max(1, self.counts.rounds)

    @property
    def noise(self) -> float:
        """How far apart the slowest and the fastest repeat are, as a part of the median one; 0 for one repeat."""
        if len(self.passes) < 2:
            return 0.0
        return (max(self.passes) - min(self.passes)) / statistics.median(self.passes)

    def add(self, more: Tally) -> None:
        """Adds another's figures."""
        self.tokens += more.tokens
        self.seconds += more.seconds
        self.graph += more.graph
        pairs = itertools.zip_longest(self.passes, more.passes, fillvalue=0.0)
        self.passes = [one + other for one, other in pairs]
        for name in ("rounds", "committed", "would", "longer", "contradictions"):
            setattr(self.counts, name, getattr(self.counts, name) + getattr(more.counts, name))
        for name, seconds in more.stages.items():
            self.stages[name] += seconds
        self.other += more.other


class Clocked(Round):
    """A round that notes each stage's time; for a CPU, where a stage is over when its call returns."""

    times: dict[str, float]

    def run(self) -> None:
        """As Round.run."""
        for name in STAGES:
            began = CPU_CLOCK()
            getattr(self, name)()
            self.times[name] += CPU_CLOCK() - began


class Timed(Captured):
    """A captured round that can put events around its replays."""

    events: list[tuple[torch.cuda.Event, torch.cuda.Event]] | None = None

    def replay(self) -> None:
        """As Captured.replay."""
        if self.events is None:
            super().replay()
            return
        pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        pair[0].record()
        super().replay()
        pair[1].record()
        self.events.append(pair)


def rows_for(context: int, settings: Settings, block: int) -> int:
    """Rows of the caches, a round number of them: kernels are compiled for multiples of 16 and for others."""
    return -(-(context + reserve(settings, block)) // 64) * 64


def engine_of(pair: Pair, settings: Settings, context: int) -> Engine:
    """A decoder with its own caches: greedy graphs where there is a GPU, else rounds whose stages are timed."""
    block = pair.draft.block_size if pair.draft is not None else 1
    fitted, cuda = settings.fitted(block), pair.target.device.type == "cuda"
    rows = rows_for(context, fitted, block)
    device, dtype = pair.target.device, pair.target.dtype
    cache = Cache(pair.target.config.shape, rows, device, dtype)
    draft = pair.draft if fitted.drafts else None
    draft_cache = None if draft is None else Cache(draft.config.shape, rows, device, dtype)
    engine = Engine(pair, fitted, cache, draft_cache, context=context, static=cuda)
    if cuda:
        capture(engine, (True,), Timed)
    else:
        engine.round = Clocked(fitted, pair.target, draft, cache, draft_cache, engine.choose)
    return engine


def decode(engine: Engine, prompt: Sequence[int], tokens: int, *, events: bool = False) -> tuple[list[int], Tally]:
    """One greedy answer, and what its rounds took. events: also the seconds inside its graphs."""
    captured = engine.graphs.get(True)
    if isinstance(captured, Timed):
        captured.events = [] if events else None
    if isinstance(engine.round, Clocked):
        engine.round.times = dict.fromkeys(STAGES, 0.0)
    tally, out = Tally(), list[int]()
    clock = CPU_CLOCK if engine.device.type == "cpu" else time.perf_counter
    began = now = 0.0
    for part in engine.generate(prompt, Sampling(tokens, temperature=0), 0, tally.counts):
        if part and not out:
            # the prompt's pass ends with the first token; rounds are timed from there
            _wait(engine)
            began = clock()
        out += part
        now = clock()
    _wait(engine)
    tally.seconds, tally.tokens = max(0.0, now - began), len(out) - 1
    if isinstance(engine.round, Clocked):
        tally.stages = engine.round.times
    if isinstance(captured, Timed) and captured.events is not None:
        # the last one ran ahead and was not read
        ran = captured.events[: tally.counts.rounds]
        tally.graph = sum(start.elapsed_time(end) for start, end in ran) / 1000
        captured.events = None
    return out, tally


def _wait(engine: Engine) -> None:
    if engine.device.type == "cuda":
        torch.cuda.synchronize()


def side_by_side(
    engines: Mapping[str, Engine],
    prompts: Mapping[str, Iterable[Sequence[int]]],
    tokens: int,
    repeats: int = 1,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, dict[str, Tally]]:
    """Tally by way and prompt family, each answer's time the median of its repeats, which are far apart in time.

    The first way's answers are those that the others are compared with.
    """
    found = {way: {family: Tally() for family in prompts} for way in engines}
    times: dict[tuple[str, str, int], list[float]] = {}
    for engine in engines.values():
        decode(engine, [0], 8)  # kernels compiled, memory touched
    for repeat in range(repeats):
        began = time.monotonic()
        for family, texts in prompts.items():
            for number, prompt in enumerate(texts):
                first: list[int] | None = None
                for way, engine in engines.items():
                    answer, tally = decode(engine, prompt, tokens)
                    times.setdefault((way, family, number), []).append(tally.seconds)
                    first = answer if first is None else first
                    if repeat:
                        continue
                    if answer != first:
                        same = next((i for i, (a, b) in enumerate(zip(answer, first, strict=False)) if a != b), -1)
                        tally.other.append(same)
                    tally.seconds = 0.0
                    found[way][family].add(tally)
        say(f"pass {repeat + 1} of {repeats} over all prompts and ways: {time.monotonic() - began:.1f} s")
    for (way, family, _), seconds in times.items():
        found[way][family].add(Tally(seconds=statistics.median(seconds), passes=seconds))
    return found


def in_graphs(engines: Mapping[str, Engine], prompts: Iterable[Sequence[int]], tokens: int) -> dict[str, Tally]:
    """Tally by way with the seconds inside the graphs, of a pass of its own: the events between rounds take time too,
    so only what is inside counts here, and what is outside is the difference to rounds without events."""
    found = {way: Tally() for way in engines}
    for prompt in prompts:
        for way, engine in engines.items():
            found[way].add(decode(engine, prompt, tokens, events=True)[1])
    return found
