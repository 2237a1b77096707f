"""The specification of tree_attention, in plain torch: dense scores, one request after the other.

The mask is that of Ringel and Romano (arXiv 2604.12989, section on verification): a node sees the whole context, its
ancestors and itself. Window and soft cap are those of Mistral and Gemma 2 as in FlashAttention.
"""

from __future__ import annotations

import torch


def gathered(cache: torch.Tensor, request: int, length: int, block_table: torch.Tensor | None) -> torch.Tensor:
    """The first `length` rows of one request's cache, [length, heads, size], from either layout."""
    if block_table is None:
        return cache[request, :length]
    position = torch.arange(length, device=cache.device)
    page = block_table[request].long()[position // cache.shape[1]]
    return cache[page, position % cache.shape[1]]


def tree_bits(visibility: torch.Tensor, nodes: int) -> torch.Tensor:
    """bool [rows, nodes] of one request's words [rows, W]."""
    node = torch.arange(nodes, device=visibility.device)
    return (visibility[:, node // 64] >> (node % 64) & 1).bool()


def tree_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    visibility: torch.Tensor,
    context_lengths: torch.Tensor,
    node_counts: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    depths: torch.Tensor | None = None,
    scale: float | None = None,
    sliding_window: int | None = None,
    soft_cap: float | None = None,
    compute: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output in the query's type and log-sum-exp [N, T, H] float32, arguments unchecked, arithmetic in `compute`."""
    batch, most, heads, size = query.shape
    group = heads // key_cache.shape[2]
    scale = size**-0.5 if scale is None else scale
    out = torch.zeros_like(query)
    log_sum = torch.full((batch, most, heads), -torch.inf, device=query.device)
    for n in range(batch):
        context = int(context_lengths[n])
        nodes = most if node_counts is None else min(most, int(node_counts[n]))
        keys = gathered(key_cache, n, context + nodes, block_table).to(compute).repeat_interleave(group, dim=1)
        values = gathered(value_cache, n, context + nodes, block_table).to(compute).repeat_interleave(group, dim=1)
        scores = torch.einsum("qhd,khd->hqk", query[n, :nodes].to(compute), keys) * scale
        if soft_cap is not None:
            scores = soft_cap * torch.tanh(scores / soft_cap)
        seen = torch.ones(nodes, context + nodes, dtype=torch.bool, device=query.device)
        seen[:, context:] = tree_bits(visibility[n, :nodes], nodes)
        if sliding_window is not None:
            assert depths is not None
            own = context + depths[n, :nodes].long()
            at = torch.cat([torch.arange(context, device=query.device), own])
            seen &= own[:, None] - at[None, :] < sliding_window
        scores = scores.masked_fill(~seen, -torch.inf)
        total = torch.logsumexp(scores, dim=-1, keepdim=True)
        weights = torch.where(total == -torch.inf, 0.0, torch.exp(scores - total))
        out[n, :nodes] = torch.einsum("hqk,khd->qhd", weights, values).to(query.dtype)
        log_sum[n, :nodes] = total[..., 0].T.float()
    return out, log_sum
