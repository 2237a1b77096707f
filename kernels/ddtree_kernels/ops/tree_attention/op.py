"""tree_attention: arguments checked, then the kernels or the reference, chosen by device."""

from __future__ import annotations

import math

import torch

from ddtree_kernels.ops.checks import FLOAT_TYPES, INDEX_TYPES, need, need_tensor, on_gpu
from ddtree_kernels.ops.tree_attention import reference

HEAD_SIZES = (64, 128, 256)


def tree_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    visibility: torch.Tensor,
    context_lengths: torch.Tensor,
    *,
    node_counts: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    depths: torch.Tensor | None = None,
    scale: float | None = None,
    sliding_window: int | None = None,
    soft_cap: float | None = None,
    return_lse: bool = False,
    max_length: int | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of every tree node over the request's context and over its ancestors and itself.

    The mask is that of Ringel and Romano (arXiv 2604.12989); the split over the context with a second reduce pass is
    flash-decoding's (Dao et al. 2023). Node j's key is row context_lengths + j of the request's cache.

    Args:
        query: [N, T, H, D] bfloat16, float16 or float32; T nodes, D 64, 128 or 256; last dimension contiguous.
        key_cache, value_cache: [N, S, Hkv, D], or with a block table [pages, page size, Hkv, D]; the query's type, the
            same strides, last dimension contiguous; Hkv divides H.
        visibility: [N, T, >= ceil(T / 64)] int64, as DraftTree's.
        context_lengths: [N] int32 or int64, rows before the tree's; context + nodes must fit the cache: rows that do
            not are never read.
        node_counts: [N] int32 or int64, T if absent; nodes from there on give 0 (and -inf).
        block_table: [N, pages of a request] int32: page of row r is entry r // page size; the page size is any power
            of two.
        depths: [N, T] int32, as DraftTree's; needed with a sliding window.
        scale: of the scores; None = D ** -0.5.
        sliding_window: a node sees only keys less than this many positions before its own; None = all.
        soft_cap: scores become cap * tanh(score / cap); None = not.
        return_lse: also give the log-sum-exp of the scores, natural logarithm.
        max_length: the most rows (context + nodes) that any request has or will have in a captured graph; only
            chooses the number of splits; None = what the cache can hold.
    Returns:
        [N, T, H, D] in the query's type; with return_lse also [N, T, H] float32. No host synchronisation.
    Raises:
        TypeError, ValueError: for arguments that are none of the above.
    """
    q = need_tensor("query", query, ["batch", "nodes", "heads", "size"], FLOAT_TYPES)
    batch, nodes, heads, size = q.shape
    need(size in HEAD_SIZES, f"query has head size {size}, not one of {HEAD_SIZES}")
    rows: int | str = batch if block_table is None else "pages"
    keys = need_tensor("key_cache", key_cache, [rows, "rows", "kv heads", size], [q.dtype], q.device)
    need_tensor("value_cache", value_cache, keys.shape, [q.dtype], q.device)
    need(keys.stride() == value_cache.stride(), "key_cache and value_cache differ in their strides")
    need(q.stride(3) == 1 and keys.stride(3) == 1, "the last dimension of query or caches is not contiguous")
    need(heads % keys.shape[2] == 0, f"{heads} query heads are no multiple of {keys.shape[2]} key heads")
    need_tensor("visibility", visibility, [batch, nodes, "words"], [torch.int64], q.device)
    need(visibility.shape[2] * 64 >= nodes, f"visibility has {visibility.shape[2]} words for {nodes} nodes")
    need(visibility.is_contiguous(), "visibility is not contiguous")
    need_tensor("context_lengths", context_lengths, [batch], INDEX_TYPES, q.device)
    if node_counts is not None:
        need_tensor("node_counts", node_counts, [batch], INDEX_TYPES, q.device)
    if block_table is not None:
        need_tensor("block_table", block_table, [batch, "pages of a request"], [torch.int32], q.device)
        need(block_table.stride(1) == 1, "the last dimension of block_table is not contiguous")
        page = keys.shape[1]
        need(page & (page - 1) == 0, f"the page size {page} is no power of two")
    need(sliding_window is None or sliding_window >= 1, f"sliding_window is {sliding_window}, not at least 1")
    if sliding_window is not None:
        need(depths is not None, "a sliding window needs depths")
        need_tensor("depths", depths, [batch, nodes], [torch.int32], q.device)
        need(depths is not None and depths.is_contiguous(), "depths is not contiguous")
    need(soft_cap is None or (math.isfinite(soft_cap) and soft_cap > 0), f"soft_cap is {soft_cap}, not above 0")
    need(scale is None or math.isfinite(scale), f"scale is {scale}")
    need(max_length is None or max_length >= 1, f"max_length is {max_length}, not at least 1")
    if on_gpu(q):
        from ddtree_kernels.ops.tree_attention import launch

        out, log_sum = launch.tree_attention(
            q, keys, value_cache, visibility, context_lengths, node_counts, block_table, depths, scale,
            sliding_window, soft_cap, return_lse, max_length,
        )  # fmt: skip
    else:
        out, log_sum = reference.tree_attention(
            q, keys, value_cache, visibility, context_lengths, node_counts, block_table, depths, scale,
            sliding_window, soft_cap,
        )  # fmt: skip
    if return_lse:
        assert log_sum is not None
        return out, log_sum
    return out
