"""The target's own token after every node: argmax, or one ordinary sample a node. Needs torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

ROWS = 64
"""rows whose probabilities are held at a time."""
Renorm = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def keep_top_k(probs: torch.Tensor, top_ks: torch.Tensor) -> torch.Tensor:
    """probs [rows, V] with all but each row's top_ks best set to 0; in plain torch."""
    order = probs.argsort(dim=-1, descending=True, stable=True)
    place = torch.arange(probs.shape[-1], device=probs.device).expand_as(probs)
    kept = place < top_ks[:, None]
    return probs * torch.zeros_like(kept).scatter_(-1, order, kept)


def keep_top_p(probs: torch.Tensor, top_ps: torch.Tensor) -> torch.Tensor:
    """probs [rows, V] with those set to 0 before which, from the best on, top_ps is reached; in plain torch."""
    best, order = probs.sort(dim=-1, descending=True, stable=True)
    kept = (best.cumsum(dim=-1) - best) <= top_ps[:, None]
    return probs * torch.zeros_like(kept).scatter_(-1, order, kept)


def filtered(probs: torch.Tensor, info: Any, rows: torch.Tensor, top_k: Renorm, top_p: Renorm) -> torch.Tensor:
    """Probabilities of some rows after top-k, top-p and min-p, each judged on the unfiltered ones as SGLang's sampler
    does. rows: the request of each row."""
    kept = torch.ones_like(probs, dtype=torch.bool)
    if info.need_top_k_sampling:
        kept &= top_k(probs, info.top_ks[rows]) > 0
    if info.need_top_p_sampling:
        kept &= top_p(probs, info.top_ps[rows]) > 0
    if info.need_min_p_sampling:
        kept &= probs >= probs.amax(dim=-1, keepdim=True) * info.min_ps[rows][:, None]
    return probs * kept


def choose(
    logits: torch.Tensor,
    info: Any,
    width: int,
    top_k: Renorm = keep_top_k,
    top_p: Renorm = keep_top_p,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """[rows] int64, written to `out`: the target's token after each row of logits [requests * width, V].

    info: SGLang's SamplingBatchInfo, None for greedy. Requests with top-k 1 (SGLang's form of temperature 0) get the
    argmax, also beside others that sample.
    """
    greedy = torch.argmax(logits, dim=-1, out=out)
    if info is None or info.is_all_greedy:
        return greedy
    request = torch.arange(logits.shape[0], device=logits.device) // width
    temperatures = info.temperatures.view(-1, 1)
    drawn = []
    for part, rows in zip(logits.split(ROWS), request.split(ROWS), strict=True):
        probs = torch.softmax(part.float() / temperatures[rows], dim=-1)
        probs = filtered(probs, info, rows, top_k, top_p)
        # the largest of p / Exp(1) is a draw from p
        drawn.append((probs / torch.empty_like(probs).exponential_(1.0)).argmax(dim=-1))
    return torch.where(info.top_ks[request] <= 1, greedy, torch.cat(drawn), out=out)
