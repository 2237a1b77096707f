"""What each stage of a round costs on a GPU. NOT YET RUN ON A GPU.

Each stage is captured as a graph of its own, so that the host's gaps do not count into it; `whole` is the graph of the
round that serves. On a CPU stages are timed as they run (decode_run.Clocked).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ddtree_kernels.bench.timing import graph_us
from ddtree_kernels.decode.engine import Engine, reserve
from ddtree_kernels.decode.round import STAGES
from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.models import Cache
from ddtree_kernels.models.api import Pair

WHOLE = "whole"


def _placed(pair: Pair, settings: Settings, context: int) -> Engine:
    assert pair.draft is not None
    fitted = settings.fitted(pair.draft.block_size)
    rows = context + 64 + reserve(fitted, pair.draft.block_size)
    device, dtype = pair.target.device, pair.target.dtype
    draft = pair.draft if fitted.drafts else None
    cache = Cache(pair.target.config.shape, rows, device, dtype)
    draft_cache = None if draft is None else Cache(draft.config.shape, rows, device, dtype)
    engine = Engine(pair, fitted, cache, draft_cache, static=True)
    engine.begin(context, torch.ones(1, dtype=torch.int64, device=device), None)
    return engine


def _stage(engine: Engine, name: str, context: int) -> Callable[[], None]:
    place, device = engine.round.place, engine.device
    assert isinstance(place.length, torch.Tensor) and isinstance(place.before, torch.Tensor)
    lengths = (
        (place.length, torch.tensor([context], device=device)),
        (place.before, torch.tensor([context - 1], device=device)),
    )

    def run() -> None:
        getattr(engine.round, "run" if name == WHOLE else name)()
        if name in ("commit", WHOLE):  # the place moves on; the next one begins where this one did
            for one, value in lengths:
                one.copy_(value)

    return run


def stage_us(pair: Pair, settings: Settings, context: int) -> dict[str, float]:
    """Microseconds of each stage and of the whole round, behind `context` committed rows."""
    engine = _placed(pair, settings, context)
    with torch.inference_mode():
        _stage(engine, WHOLE, context)()
        return {name: graph_us([_stage(engine, name, context)]) for name in (*STAGES, WHOLE)}
