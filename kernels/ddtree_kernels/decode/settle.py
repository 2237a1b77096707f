"""Launch of the kernel that ends a captured round; round.py says the same in plain torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ddtree_kernels.decode.ring import SLOTS, Ring
from ddtree_kernels.ops.checks import next_power_of_two
from ddtree_kernels.ops.tree_accept import Accepted

if TYPE_CHECKING:
    from ddtree_kernels.decode.round import Place


def settle(
    place: Place,
    accepted: Accepted,
    chosen: torch.Tensor,
    features: torch.Tensor | None,
    figures: torch.Tensor | None,
    ring: Ring,
    width: int,
) -> None:
    """Writes a round's output row and moves a static place behind what was accepted, in place.

    Args:
        accepted: of one request. chosen: [nodes] int64, the target's token after each node.
        features: [nodes, F], of which the accepted rows go to place.pending [width, F]; None = there are none.
        figures: int64 [2], the tree's count and whether it contradicts; None = the count once more, and 0.
        ring: takes the row [width + 3]: the new tokens (0 behind them), their number, and the figures.
    """
    from ddtree_kernels.decode import triton as kernels

    assert isinstance(place.length, torch.Tensor) and isinstance(place.before, torch.Tensor)
    kept = features is not None and place.pending is not None
    columns = place.pending.shape[1] if kept and place.pending is not None else 0
    block = min(1024, next_power_of_two(max(16, columns)))
    kernels.settle_kernel[(width + 1 if kept else 1, max(1, -(-columns // block)))](
        accepted.nodes, accepted.counts, accepted.bonus, chosen, features if kept else chosen,
        place.pending if kept else chosen, chosen if figures is None else figures, ring.rows, ring.turn,
        place.length, place.before, place.root, width, columns, SLOTS=SLOTS,
        WIDTH_PAD=next_power_of_two(width), BLOCK=block, SHADOW=figures is not None, num_warps=max(1, block // 256),
    )  # fmt: skip
