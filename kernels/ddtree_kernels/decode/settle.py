"""Launch of the kernel that ends a captured round; round.py says the same in plain torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ddtree_kernels.ops.checks import next_power_of_two
from ddtree_kernels.ops.tree_accept import Accepted

if TYPE_CHECKING:
    from ddtree_kernels.decode.round import Place


def settle(
    place: Place,
    accepted: Accepted,
    chosen: torch.Tensor,
    features: torch.Tensor | None,
    output: torch.Tensor,
    width: int,
    *,
    emit: bool,
) -> None:
    """Moves a static place behind what was accepted, in place.

    Args:
        accepted: of one request. chosen: [nodes] int64, the target's token after each node.
        features: [nodes, F], of which the accepted rows go to place.pending [width, F]; None = there are none.
        output: [width + 3]: the new tokens (0 behind them), their number twice, and 0; only with emit.
    """
    from ddtree_kernels.decode import triton as kernels

    assert isinstance(place.length, torch.Tensor) and isinstance(place.before, torch.Tensor)
    kept = features is not None and place.pending is not None
    columns = place.pending.shape[1] if kept and place.pending is not None else 0
    block = min(1024, next_power_of_two(max(16, columns)))
    kernels.settle_kernel[(width if kept else 1, max(1, -(-columns // block)))](
        accepted.nodes, accepted.counts, accepted.bonus, chosen, features if kept else chosen,
        place.pending if kept else chosen, output, place.length, place.before, place.root, width, columns,
        WIDTH_PAD=next_power_of_two(width), BLOCK=block, EMIT=emit, num_warps=max(1, block // 256),
    )  # fmt: skip
