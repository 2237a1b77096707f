"""Launch of the kernel that ends a captured round: walk, commit and settling; round.py says the same in plain torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ddtree_kernels.decode.ring import SLOTS, Ring
from ddtree_kernels.ops.checks import next_power_of_two
from ddtree_kernels.ops.kv_commit.launch import unit_bytes
from ddtree_kernels.ops.tree_build.tree import DraftTree

if TYPE_CHECKING:
    from ddtree_kernels.decode.round import Place
    from ddtree_kernels.models.api import Cache

ALONE, CHAIN, TREE, SHADOW = range(4)
"""What was verified: the root, a chain, a tree; of a shadow's tree the chain alone counts."""
UNITS = 128
"""The most cache units (of 8 bytes, where rows allow) of a row that one program moves."""


def finish(
    place: Place,
    verified: torch.Tensor | DraftTree | None,
    chosen: torch.Tensor,
    features: torch.Tensor | None,
    cache: Cache,
    began: torch.Tensor,
    ring: Ring,
    width: int,
    *,
    shadow: bool = False,
) -> None:
    """What the target accepts; its cache rows and features to the front, the output row, the place behind it.

    Args:
        place: static; length, before, root and pending [width, F] are written.
        verified: tokens [nodes] of a chain, the tree of a batch of 1, or None: the root alone.
        chosen: [nodes] int64, the target's token after each node. features: [nodes, F]; None = there are none.
        began: [1] int64, for a tree: a copy of place.length. Every program that moves rows reads it while another one
            moves the place on.
        ring: takes the row [width + 3]: the new tokens (0 behind them), their number, what the tree would have
            committed (else the number once more), and 1 where tree and chain contradict.
        width: the most tokens of a round. shadow: what the tree's chain of first children accepts counts.
    """
    from ddtree_kernels.decode import finish_triton as kernels

    assert isinstance(place.length, torch.Tensor) and isinstance(place.before, torch.Tensor)
    pending, nodes = place.pending, chosen.shape[0]
    kept = features is not None and pending is not None
    columns = pending.shape[1] if kept and pending is not None else 0
    block = min(1024, next_power_of_two(max(16, columns)))
    blocks = -(-columns // block)
    tree = verified if isinstance(verified, DraftTree) else None
    tokens, kind = (verified, CHAIN) if isinstance(verified, torch.Tensor) else (chosen, ALONE)
    unit, units, wide, moves, layers = 8, 0, 1, 0, 0
    if tree is not None:
        tokens, kind = tree.tokens, SHADOW if shadow else TREE
        first = cache.keys[0]
        row = first.stride(1) * first.element_size()
        unit = unit_bytes([row])
        units, layers = row // unit, len(cache.table.tensors)
        wide = min(UNITS, next_power_of_two(units))
        moves = -(-units // wide)
    pad = max(16, next_power_of_two(nodes))
    kernels.finish_kernel[(1 + width * blocks + layers * moves,)](
        tokens,
        *((tree.parents, tree.depths, tree.first_child, tree.visibility) if tree is not None else (chosen,) * 4),
        chosen,
        features if kept else chosen, pending if kept else chosen,
        chosen if tree is None else cache.table.addresses, began,
        ring.rows, ring.turn, place.length, place.before, place.root,
        nodes, width, columns, blocks, units, moves, cache.rows,
        KIND=kind, SLOTS=SLOTS, PAD=pad, WORDS=1 if tree is None else tree.visibility.shape[2],
        STEPS=max(16, next_power_of_two(width)), BLOCK=block, UNITS=wide, BYTES=unit,
        num_warps=4 if pad <= 256 else 8,
    )  # fmt: skip
