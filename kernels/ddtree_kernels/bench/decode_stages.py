"""What each stage of a round costs on a GPU. NOT YET RUN ON A GPU.

Each stage is captured as a graph of its own, so that the host's gaps do not count into it; `whole` is the graph of the
round that serves. On a CPU stages are timed as they run (decode_run.Clocked).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from ddtree_kernels.bench.decode_run import rows_for
from ddtree_kernels.decode.engine import Engine
from ddtree_kernels.decode.round import STAGES
from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.models import Cache
from ddtree_kernels.models.api import Pair

WHOLE = "whole"
REPLAYS = 21
_AHEAD = 200_000
"""Cycles that the GPU is kept busy before a timed graph, so that it waits for nothing of the host's."""


def placed(pair: Pair, settings: Settings, context: int) -> Engine:
    """A decoder behind `context` committed rows of nothing, its rounds static."""
    assert pair.draft is not None
    fitted = settings.fitted(pair.draft.block_size)
    rows = rows_for(context + 64, fitted, pair.draft.block_size)
    device, dtype = pair.target.device, pair.target.dtype
    draft = pair.draft if fitted.drafts else None
    cache = Cache(pair.target.config.shape, rows, device, dtype)
    draft_cache = None if draft is None else Cache(draft.config.shape, rows, device, dtype)
    engine = Engine(pair, fitted, cache, draft_cache, static=True)
    engine.begin(context, torch.ones(1, dtype=torch.int64, device=device), None)
    return engine


def _reset(engine: Engine, context: int) -> None:
    """A commit moves the place on; the next replay begins where this one did."""
    place = engine.round.place
    assert isinstance(place.length, torch.Tensor) and isinstance(place.before, torch.Tensor)
    place.length.fill_(context)
    place.before.fill_(context - 1)


def _graph(call: Callable[[], None]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def _replay_us(graph: torch.cuda.CUDAGraph, engine: Engine, context: int) -> float:
    """Microseconds of one replay, median of many, the GPU never waiting for the host."""
    times = []
    for _ in range(REPLAYS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        _reset(engine, context)
        torch.cuda._sleep(_AHEAD)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


def stage_us(pair: Pair, settings: Settings, context: int) -> dict[str, float]:
    """Microseconds of each stage and of the whole round, behind `context` committed rows."""
    engine = placed(pair, settings, context)
    round_ = engine.round
    found = {}
    with torch.inference_mode():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                round_.run()
                _reset(engine, context)
        torch.cuda.current_stream().wait_stream(side)
        for name in STAGES:
            # a stage reads what the one before it left: here in the runs above, or in the graph before its own
            empty = name in ("draft", "build") and not settings.drafts
            found[name] = 0.0 if empty else _replay_us(_graph(getattr(round_, name)), engine, context)
        found[WHOLE] = _replay_us(_graph(round_.run), engine, context)
    return found
