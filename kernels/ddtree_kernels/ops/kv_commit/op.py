"""kv_commit and feature_commit: arguments checked, then the kernel or the reference, chosen by device."""

from __future__ import annotations

import torch

from ddtree_kernels.ops.checks import INDEX_TYPES, need, need_tensor, on_gpu
from ddtree_kernels.ops.kv_commit import reference
from ddtree_kernels.ops.kv_commit.table import KvTable
from ddtree_kernels.ops.tree_accept.op import Accepted


def kv_commit(
    caches: KvTable | torch.Tensor,
    accepted: Accepted,
    context_lengths: torch.Tensor,
    *,
    block_table: torch.Tensor | None = None,
) -> None:
    """Moves the accepted nodes' rows of all layers to the front of the appended window, in place.

    Step 6 of Ringel and Romano (arXiv 2604.12989). Row context + k becomes the old row context + accepted.nodes[k] for
    every k below accepted.counts; rows behind them are left as they are. Source and destination may overlap: a program
    reads all rows of its columns before it writes one. Two requests must not share a page of the window.

    Args:
        caches: a table of all layers' keys and values, or one stacked tensor [layers, N, S, Hkv, D] or
            [layers, pages, page size, Hkv, D] of any type, last dimension contiguous.
        accepted: as from tree_accept; node indices rise strictly and start with 0.
        context_lengths: [N] int32 or int64, the rows before the window.
        block_table: [N, pages of a request] int32, for pages, as in tree_attention.
    Returns:
        Nothing: one launch, no host synchronisation.
    Raises:
        TypeError, ValueError: for arguments that are none of the above.
    """
    if isinstance(caches, KvTable):
        first = caches.tensors[0]
    else:
        need(isinstance(caches, torch.Tensor), f"caches is a {type(caches).__name__}, not a KvTable or a tensor")
        need(caches.dim() == 5, f"a stacked cache has 5 dimensions, not {caches.dim()}")
        need(caches.stride(4) == 1, "the last dimension of the caches is not contiguous")
        first = caches[0]
    batch = accepted.counts.shape[0]
    need_tensor("accepted.nodes", accepted.nodes, [batch, "depth + 1"], [torch.int32], first.device)
    need_tensor("context_lengths", context_lengths, [batch], INDEX_TYPES, first.device)
    if block_table is None:
        need(first.shape[0] == batch, f"caches hold {first.shape[0]} requests, not {batch}")
    else:
        need_tensor("block_table", block_table, [batch, "pages of a request"], [torch.int32], first.device)
        need(block_table.stride(1) == 1, "the last dimension of block_table is not contiguous")
    if on_gpu(first):
        from ddtree_kernels.ops.kv_commit import launch

        launch.commit(caches, accepted.nodes, accepted.counts, context_lengths, block_table)
        return
    layers = caches.tensors if isinstance(caches, KvTable) else caches.unbind(0)
    reference.commit(layers, accepted.nodes, accepted.counts, context_lengths, block_table)


def feature_commit(features: torch.Tensor, accepted: Accepted) -> None:
    """Moves the accepted nodes' hidden features to the front, in place: row k becomes the old row accepted.nodes[k].

    Args:
        features: [N, T, F] of any type, last dimension contiguous: what the next draft is conditioned on.
        accepted: as from tree_accept.
    Returns:
        Nothing: one launch, no host synchronisation.
    Raises:
        TypeError, ValueError: for arguments that are none of the above.
    """
    need(isinstance(features, torch.Tensor) and features.dim() == 3, "features is no tensor of 3 dimensions")
    need(features.stride(2) == 1, "the last dimension of features is not contiguous")
    batch = accepted.counts.shape[0]
    need(features.shape[0] == batch, f"features hold {features.shape[0]} requests, not {batch}")
    need_tensor("accepted.nodes", accepted.nodes, [batch, "depth + 1"], [torch.int32], features.device)
    if on_gpu(features):
        from ddtree_kernels.ops.kv_commit import launch

        launch.commit(features[None, :, :, None, :], accepted.nodes, accepted.counts, None, None)
        return
    nowhere = torch.zeros(batch, dtype=torch.int32)
    reference.commit([features], accepted.nodes, accepted.counts, nowhere)
