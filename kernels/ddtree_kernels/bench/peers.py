"""What others do for the same result, measured beside ours."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask


def published_build(logits: torch.Tensor, budget: int) -> list[tuple[list[int], list[int], torch.Tensor]]:
    """Tree building as in `ddtree.py` of liranringel/ddtree: top-k on the GPU, copies, a heap, numpy visibility.

    For each request tokens, parents and the visibility back on the GPU; one request after the other.
    """
    trees = []
    for rows in logits:
        values, ids = torch.topk(rows.float(), min(budget, rows.shape[-1]), dim=-1)
        log_probs = (values - torch.logsumexp(rows.float(), dim=-1, keepdim=True)).cpu().numpy()
        tokens_of = ids.cpu().numpy()
        depth, k = log_probs.shape
        heap: list[tuple[float, tuple[int, ...], int, int, int, float]] = []
        heapq.heappush(heap, (-float(log_probs[0, 0]), (0,), 0, 1, 0, float(log_probs[0, 0])))
        tokens: list[int] = []
        parents = [-1]
        while heap and len(tokens) < budget:
            _, ranks, parent, level, rank, score = heapq.heappop(heap)
            tokens.append(int(tokens_of[level - 1, rank]))
            parents.append(parent)
            node = len(tokens)
            if rank + 1 < k:
                beside = score - float(log_probs[level - 1, rank]) + float(log_probs[level - 1, rank + 1])
                heapq.heappush(heap, (-beside, (*ranks[:-1], rank + 1), parent, level, rank + 1, beside))
            if level < depth:
                below = score + float(log_probs[level, 0])
                heapq.heappush(heap, (-below, (*ranks, 0), node, level + 1, 0, below))
        visibility = np.zeros((len(parents), len(parents)), dtype=bool)
        visibility[0, 0] = True
        for node in range(1, len(parents)):
            visibility[node] = visibility[parents[node]]
            visibility[node, node] = True
        trees.append((tokens, parents, torch.from_numpy(visibility).to(logits.device)))
    return trees


def dense_mask(bits: torch.Tensor, context: int, dtype: torch.dtype) -> torch.Tensor:
    """[1, 1, T, context + T]: 0 where visible, the type's minimum elsewhere, as the published reference builds it."""
    nodes = bits.shape[0]
    mask = torch.zeros(1, 1, nodes, context + nodes, dtype=dtype, device=bits.device)
    mask[0, 0, :, context:].masked_fill_(~bits, torch.finfo(dtype).min)
    return mask


def flex_mask(bits: torch.Tensor, context: int) -> BlockMask:
    """FlexAttention's mask of a tree over its context, made outside of what is timed."""
    nodes = bits.shape[0]

    def visible(_b: torch.Tensor, _h: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (key < context) | bits[query, (key - context).clamp(min=0)]

    return create_block_mask(visible, None, None, nodes, context + nodes, device=str(bits.device))


def flex(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: BlockMask, attend: Callable[..., torch.Tensor]
) -> torch.Tensor:
    """As `sdpa`; attend: flex_attention, compiled for what is timed."""
    heads_first = (x.transpose(1, 2) for x in (q, k, v))
    return attend(*heads_first, block_mask=mask, enable_gqa=True).transpose(1, 2)


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """[1, T, H, D] over [1, S, Hkv, D] by torch, heads repeated inside."""
    return torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask, enable_gqa=True
    ).transpose(1, 2)
