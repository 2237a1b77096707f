"""Where a captured round's time goes: the kernels of a real answer's rounds, by torch's profiler."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch.profiler import ProfilerActivity, profile

from ddtree_kernels.decode.engine import Engine
from ddtree_kernels.decode.sampling import Sampling

TOKENS = 128
MOST = 24
"""Kernels that are named, the longest first."""
LAST = "finish_kernel"
"""The kernel that a round ends with."""
_WIDTH = 90


def kernels(engine: Engine, prompts: Sequence[Sequence[int]]) -> Iterator[str]:
    """Lines: launches and microseconds of a round, what passes between two rounds, then each kernel's."""
    counts: dict[str, int] = defaultdict(int)
    times: dict[str, float] = defaultdict(float)
    between: list[float] = []
    for prompt in prompts:
        steps = engine.generate(prompt, Sampling(TOKENS, temperature=0), 0)
        while not next(steps):
            pass  # the prompt's pass
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            for _ in steps:
                pass
            torch.cuda.synchronize()
        spans = sorted(
            (event.time_range.start, event.time_range.end, event.name)
            for event in found.events() or ()
            if str(event.device_type).endswith("CUDA")
        )
        for start, end, name in spans:
            counts[name] += 1
            times[name] += end - start
        following = itertools.pairwise(spans)
        between += [later[0] - one[1] for one, later in following if one[2].startswith(LAST)]
    rounds = max(1, sum(count for name, count in counts.items() if name.startswith(LAST)))
    count, spent = sum(counts.values()) / rounds, sum(times.values()) / rounds
    yield f"{count:.0f} launches and copies a round, {spent:.0f} µs in them"
    if between:
        yield f"from a round's last kernel to the next one's first {statistics.median(between):.1f} µs (median)"
    yield ""
    yield "| kernel | a round | µs each | µs a round |"
    yield "|---|---|---|---|"
    for name in sorted(times, key=lambda name: -times[name])[:MOST]:
        short = name if len(name) <= _WIDTH else name[: _WIDTH - 1] + "…"
        a_round = counts[name] / rounds, times[name] / counts[name], times[name] / rounds
        yield f"| {short.replace('|', ' ')} | {a_round[0]:.1f} | {a_round[1]:.2f} | {a_round[2]:.1f} |"
