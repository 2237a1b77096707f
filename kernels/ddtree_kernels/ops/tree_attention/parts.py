"""What all split kernels of tree_attention share: scratch for their parts and the launch that joins these."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from ddtree_kernels.ops.checks import next_power_of_two
from ddtree_kernels.ops.tree_attention import triton as kernels

LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class Parts:
    """Outputs and scratch of one call; `count` parts a row, of which rows before shared_from have every shared-th."""

    out: torch.Tensor
    log_sum: torch.Tensor | None
    part_out: torch.Tensor
    part_log: torch.Tensor
    count: int
    shared: int = 1
    shared_from: int = 0

    @property
    def direct(self) -> bool:
        """Whether the split kernel writes the output itself."""
        return self.count == 1


def make_parts(query: torch.Tensor, count: int, with_log: bool, shared: int = 1, shared_from: int = 0) -> Parts:
    """Uninitialised tensors for a query [N, T, H, D]."""
    batch, nodes, heads, size = query.shape
    rows = batch * nodes * heads * count if count > 1 else 0
    float32 = torch.float32
    return Parts(
        torch.empty(batch, nodes, heads, size, dtype=query.dtype, device=query.device),
        torch.empty(batch, nodes, heads, dtype=float32, device=query.device) if with_log else None,
        torch.empty(max(rows * size, 1), dtype=float32, device=query.device),
        torch.empty(max(rows, 1), dtype=float32, device=query.device),
        count,
        shared,
        shared_from,
    )


def join(parts: Parts, group: int, pdl: bool) -> None:
    """The reduction, if there is more than one part; with pdl it is launched while the split kernel still runs."""
    if parts.direct:
        return
    batch, nodes, heads, size = parts.out.shape
    padded = next_power_of_two(parts.count)
    kernels.reduce_kernel[(batch * nodes * heads,)](
        parts.part_out,
        parts.part_log,
        parts.out,
        parts.part_log if parts.log_sum is None else parts.log_sum,
        parts.count,
        nodes,
        parts.shared,
        parts.shared_from,
        HEADS=heads,
        GROUP=group,
        SIZE=size,
        PARTS_PAD=padded,
        SHARED=parts.shared > 1,
        WITH_LOG=parts.log_sum is not None,
        PDL=pdl,
        num_warps=min(8, max(1, padded * size // 1024)),  # 32 elements a thread: ptxas issues all its loads at once
        **({"launch_pdl": True} if pdl else {}),
    )


@functools.cache
def multiprocessors(index: int) -> int:
    """Of this CUDA device; 1 where there is none (the interpreter)."""
    if not torch.cuda.is_available():
        return 1
    return torch.cuda.get_device_properties(index).multi_processor_count


@functools.cache
def capability(index: int) -> tuple[int, int]:
    """Of this CUDA device; (0, 0) where there is none."""
    if not torch.cuda.is_available():
        return (0, 0)
    return torch.cuda.get_device_capability(index)
