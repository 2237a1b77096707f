"""What each stage of a round costs on a GPU.

Each stage is captured as a graph of its own, so that the host's gaps do not count into it; `whole` is the graph of the
round that serves. What a tree costs to build depends on the logits, so the graphs are replayed behind real text.
On a CPU stages are timed as they run (decode_run.Clocked).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch

from ddtree_kernels.bench.decode_run import rows_for
from ddtree_kernels.decode.engine import Engine
from ddtree_kernels.decode.round import STAGES
from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.models import Cache
from ddtree_kernels.models.api import Pair

WHOLE = "whole"
REPLAYS = 9
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


def _kept(engine: Engine) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The place's tensors, each with a copy: a commit moves the place on, and the next replay begins where it was."""
    place = engine.round.place
    tensors = (place.length, place.before, place.root, place.pending)
    return [(tensor, tensor.clone()) for tensor in tensors if isinstance(tensor, torch.Tensor)]


def _restore(kept: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for tensor, copy in kept:
        tensor.copy_(copy)


def _graph(call: Callable[[], None]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def _replay_us(graph: torch.cuda.CUDAGraph, kept: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Microseconds of one replay, median of many, the GPU never waiting for the host."""
    times = []
    for _ in range(REPLAYS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        _restore(kept)
        torch.cuda._sleep(_AHEAD)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


def stage_us(pair: Pair, settings: Settings, context: int, texts: Sequence[Sequence[int]] = ()) -> dict[str, float]:
    """Microseconds of each stage and of the whole round, the mean over these texts of at most `context` tokens.

    Without texts behind `context` rows of nothing. A stage that launches nothing takes 0.
    """
    engine = placed(pair, settings, context)
    round_ = engine.round
    with torch.inference_mode():
        kept = _kept(engine)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                round_.run()
                _restore(kept)
        torch.cuda.current_stream().wait_stream(side)
        # a stage reads what the graph of the one before it left
        calls = {name: getattr(round_, name) for name in STAGES if round_.launches(name)}
        graphs = {name: _graph(call) for name, call in {**calls, WHOLE: round_.run}.items()}
        found = dict.fromkeys((*STAGES, WHOLE), 0.0)
        for text in texts or ((),):
            if text:
                list(engine._prefill(list(text)))
                kept = _kept(engine)
            for name, graph in graphs.items():
                found[name] += _replay_us(graph, kept) / max(1, len(texts))
    return found
