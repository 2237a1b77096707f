"""Where a captured round's time goes: its kernels by torch's profiler. NOT YET RUN ON A GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import torch
from torch.profiler import ProfilerActivity, profile

from ddtree_kernels.bench.decode_run import Timed
from ddtree_kernels.decode.engine import Engine

ROUNDS = 3
MOST = 24
"""Kernels that are named, the longest first."""
_WIDTH = 90


def kernels(engine: Engine) -> Iterator[str]:
    """Lines: launches and microseconds of a round, then each kernel's, of rounds near the end of the context."""
    captured = engine.graphs[True]
    assert isinstance(captured, Timed)
    length = max(16, engine.context - (ROUNDS + 2) * engine.round.width)
    engine.begin(length, torch.zeros(1, dtype=torch.int64, device=engine.device), None)
    captured.replay()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(ROUNDS):
            captured.replay()
        torch.cuda.synchronize()
    counts: dict[str, int] = defaultdict(int)
    times: dict[str, float] = defaultdict(float)
    for event in found.events() or ():
        if str(event.device_type).endswith("CUDA"):
            counts[event.name] += 1
            times[event.name] += event.time_range.elapsed_us()
    count, spent = sum(counts.values()) / ROUNDS, sum(times.values()) / ROUNDS
    yield f"{count:.0f} launches and copies a round, {spent:.0f} µs in them"
    yield ""
    yield "| kernel | a round | µs each | µs a round |"
    yield "|---|---|---|---|"
    for name in sorted(times, key=lambda name: -times[name])[:MOST]:
        each = times[name] / counts[name]
        short = name if len(name) <= _WIDTH else name[: _WIDTH - 1] + "…"
        yield f"| {short.replace('|', ' ')} | {counts[name] / ROUNDS:.1f} | {each:.2f} | {times[name] / ROUNDS:.1f} |"
