"""Launch of kv_commit's kernel: rows are moved as units of up to 8 bytes, whatever their type."""

from __future__ import annotations

import torch
import triton.language as tl

from ddtree_kernels.ops.checks import next_power_of_two
from ddtree_kernels.ops.kv_commit import triton as kernels
from ddtree_kernels.ops.kv_commit.table import KvTable

UNITS = {8: tl.int64, 4: tl.int32, 2: tl.int16, 1: tl.int8}


def unit_bytes(sizes: list[int]) -> int:
    """The widest unit, in bytes, that divides all of these."""
    return next(unit for unit in UNITS if all(size % unit == 0 for size in sizes))


def commit(
    caches: KvTable | torch.Tensor,
    nodes: torch.Tensor,
    counts: torch.Tensor,
    context_lengths: torch.Tensor | None,
    block_table: torch.Tensor | None,
) -> None:
    """As reference.commit over a table or a stacked tensor; without context lengths the window starts at row 0."""
    tabled = isinstance(caches, KvTable)
    first = caches.tensors[0] if isinstance(caches, KvTable) else caches[0]
    layers = len(caches.tensors) if isinstance(caches, KvTable) else caches.shape[0]
    starts = [t.data_ptr() for t in caches.tensors] if isinstance(caches, KvTable) else [caches.data_ptr()]
    element = first.element_size()
    page_stride, row_stride, head_stride, _ = (stride * element for stride in first.stride())
    layer_stride = 0 if isinstance(caches, KvTable) else caches.stride(0) * element
    heads, head = first.shape[2], first.shape[3] * element
    if head_stride == head or heads == 1:  # a row is one run
        heads, head, head_stride = 1, heads * head, heads * head
    unit = unit_bytes([page_stride, row_stride, head_stride, layer_stride, head, *starts])
    batch, steps = nodes.shape
    width = heads * head // unit
    block = min(next_power_of_two(width), 128)
    page = 0 if block_table is None else first.shape[1]
    capacity = first.shape[1] if block_table is None else page * block_table.shape[1]
    kernels.commit_kernel[(-(-width // block), layers, batch)](
        first if tabled else caches,
        caches.addresses if isinstance(caches, KvTable) else counts,
        nodes,
        counts,
        counts if context_lengths is None else context_lengths,
        counts if block_table is None else block_table,
        layer_stride // unit,
        page_stride // unit,
        row_stride // unit,
        head_stride // unit,
        0 if block_table is None else block_table.stride(0),
        capacity,
        steps,
        width,
        HEAD=head // unit,
        PAGE=page,
        STEPS_PAD=next_power_of_two(steps),
        BLOCK=block,
        UNIT=UNITS[unit],
        TABLED=tabled,
        AT_ZERO=context_lengths is None,
        num_warps=4,
    )
