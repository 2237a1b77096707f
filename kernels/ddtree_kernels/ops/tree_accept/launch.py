"""Launches of tree_accept's kernels."""

from __future__ import annotations

import torch

from ddtree_kernels.ops import pdl
from ddtree_kernels.ops.checks import next_power_of_two
from ddtree_kernels.ops.tree_accept import triton as kernels

BLOCK = 8192
CHAINED = True  # the walk after its argmax, by ops/pdl.py: 12.2 and not 12.8 µs on an H200
Walk = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _chained(target: torch.Tensor) -> bool:
    """Whether the walk follows an argmax early: only where the argmax is launched, for logits."""
    return CHAINED and target.dim() == 3 and pdl.supported(target.device)


def _parts(target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Target tokens and an unused tensor and 0; for logits an unused tensor, the parts of the argmax, their number."""
    if target.dim() == 2:
        tokens = target.contiguous()
        return tokens, tokens, 0
    batch, nodes, vocab = target.shape
    splits = -(-vocab // BLOCK)
    part = torch.empty(batch * nodes * splits, dtype=torch.int64, device=target.device)
    kernels.argmax_kernel[(splits, batch * nodes)](
        target,
        part,
        target.stride(0),
        target.stride(1),
        nodes,
        vocab,
        BLOCK=BLOCK,
        PDL=_chained(target),
        num_warps=8,
    )
    return part, part, splits


def _outputs(batch: int, depth: int, device: torch.device) -> Walk:
    """Unwritten nodes, counts and bonus tokens."""
    return (
        torch.empty(batch, depth + 1, dtype=torch.int32, device=device),
        torch.empty(batch, dtype=torch.int32, device=device),
        torch.empty(batch, dtype=torch.int64, device=device),
    )


def tree_walk(tokens: torch.Tensor, parents: torch.Tensor, target: torch.Tensor, depth: int) -> Walk:
    """As reference.tree_walk, with the parents in place of the child links; target as tokens or logits."""
    batch, nodes = tokens.shape
    given, part, splits = _parts(target)
    out = _outputs(batch, depth, tokens.device)
    kernels.tree_walk_kernel[(batch,)](
        tokens,
        parents,
        given,
        part,
        *out,
        splits,
        nodes,
        depth,
        NODES_PAD=next_power_of_two(nodes),
        DEPTH_PAD=next_power_of_two(depth + 1),
        SPLITS_PAD=next_power_of_two(splits) if splits else 0,
        num_warps=1 if nodes <= 129 else 4,
        **pdl.after(_chained(target)),
    )
    return out


def linear_walk(draft: torch.Tensor, target: torch.Tensor) -> Walk:
    """As reference.linear_walk; target as tokens or logits."""
    batch, depth = draft.shape
    given, part, splits = _parts(target)
    out = _outputs(batch, depth, draft.device)
    kernels.linear_walk_kernel[(batch,)](
        draft.contiguous(),
        given,
        part,
        *out,
        splits,
        depth,
        DEPTH_PAD=next_power_of_two(depth + 1),
        SPLITS_PAD=next_power_of_two(splits) if splits else 0,
        num_warps=1,
        **pdl.after(_chained(target)),
    )
    return out
