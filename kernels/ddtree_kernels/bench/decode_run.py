"""Decoding of prompts in several ways, side by side: prompts outside, ways inside, so that noise meets all alike."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from ddtree_kernels.decode.engine import Counts, Engine, reserve
from ddtree_kernels.decode.graphs import capture
from ddtree_kernels.decode.round import STAGES, Round
from ddtree_kernels.decode.sampling import Sampling
from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.models import Cache
from ddtree_kernels.models.api import Pair

CPU_CLOCK = time.process_time
"""On a CPU with one thread: seconds of this process alone, whatever else the machine does meanwhile."""


@dataclass
class Tally:
    """Of one way over some prompts. seconds: of decoding, prompts not counted. stages: seconds by stage, on a CPU.
    other: answers that differ from the first way's, and of how many tokens the common beginning was."""

    tokens: int = 0
    seconds: float = 0.0
    counts: Counts = field(default_factory=Counts)
    stages: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
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

    def add(self, more: Tally) -> None:
        """Adds another's figures."""
        self.tokens += more.tokens
        self.seconds += more.seconds
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


def engine_of(pair: Pair, settings: Settings, context: int) -> Engine:
    """A decoder with its own caches: graphs where there is a GPU, else rounds whose stages are timed."""
    block = pair.draft.block_size if pair.draft is not None else 1
    fitted, cuda = settings.fitted(block), pair.target.device.type == "cuda"
    rows = context + reserve(fitted, block)
    device, dtype = pair.target.device, pair.target.dtype
    cache = Cache(pair.target.config.shape, rows, device, dtype)
    draft = pair.draft if fitted.drafts else None
    draft_cache = None if draft is None else Cache(draft.config.shape, rows, device, dtype)
    engine = Engine(pair, fitted, cache, draft_cache, context=context, static=cuda)
    if cuda:
        capture(engine)
    else:
        engine.round = Clocked(fitted, pair.target, draft, cache, draft_cache, engine.choose)
    return engine


def decode(engine: Engine, prompt: Sequence[int], tokens: int, tally: Tally) -> list[int]:
    """One greedy answer; its rounds' time goes to the tally."""
    if isinstance(engine.round, Clocked):
        engine.round.times = dict.fromkeys(STAGES, 0.0)
    counts = Counts()
    out: list[int] = []
    clock = CPU_CLOCK if engine.device.type == "cpu" else time.perf_counter
    began = 0.0
    for part in engine.generate(prompt, Sampling(tokens, temperature=0), 0, counts):
        if not out:
            # the prompt's pass ends with the first token; rounds are timed from there
            _wait(engine)
            began = clock()
        out += part
    _wait(engine)
    tally.seconds += clock() - began
    tally.tokens += len(out) - 1
    more = Tally(counts=counts)
    if isinstance(engine.round, Clocked):
        more.stages = engine.round.times
    tally.add(more)
    return out


def _wait(engine: Engine) -> None:
    if engine.device.type == "cuda":
        torch.cuda.synchronize()


def side_by_side(
    engines: Mapping[str, Engine], prompts: Mapping[str, Iterable[Sequence[int]]], tokens: int
) -> dict[str, dict[str, Tally]]:
    """Tally by way and prompt family. The first way's answers are those that the others are compared with."""
    found = {way: {family: Tally() for family in prompts} for way in engines}
    for engine in engines.values():
        decode(engine, [0], 8, Tally())  # kernels compiled, memory touched
    for family, texts in prompts.items():
        for prompt in texts:
            first: list[int] | None = None
            for way, engine in engines.items():
                answer = decode(engine, prompt, tokens, found[way][family])
                first = answer if first is None else first
                if answer != first:
                    same = next((i for i, (a, b) in enumerate(zip(answer, first, strict=False)) if a != b), -1)
                    found[way][family].other.append(same)
    return found
