"""The specification of kv_commit, in plain torch: step 6 of Ringel and Romano (arXiv 2604.12989), without the crop."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def commit(
    caches: Iterable[torch.Tensor],
    nodes: torch.Tensor,
    counts: torch.Tensor,
    context_lengths: torch.Tensor,
    block_table: torch.Tensor | None = None,
) -> None:
    """Row context + k of every cache becomes its old row context + nodes[k], for k below the count; in place."""
    lengths, kept = context_lengths.tolist(), counts.tolist()
    for cache in caches:
        for n, (context, count) in enumerate(zip(lengths, kept, strict=True)):
            source = context + nodes[n, :count].long()
            target = context + torch.arange(count, device=cache.device)
            if block_table is None:
                cache[n, target] = cache[n, source].clone()
            else:
                size, pages = cache.shape[1], block_table[n].long()
                rows = cache[pages[source // size], source % size].clone()
                cache[pages[target // size], target % size] = rows
