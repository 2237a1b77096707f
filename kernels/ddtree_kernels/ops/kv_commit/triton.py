"""The kernel of kv_commit: every accepted row of one cache, one request and one block of columns."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def commit_kernel(
    stacked: tl.tensor,
    addresses: tl.tensor,
    nodes: tl.tensor,
    counts: tl.tensor,
    context_lengths: tl.tensor,
    block_table: tl.tensor,
    stride_layer: tl.tensor,
    stride_page: tl.tensor,
    stride_row: tl.tensor,
    stride_head: tl.tensor,
    stride_table: tl.tensor,
    capacity: tl.tensor,
    steps: tl.tensor,
    width: tl.tensor,
    HEAD: tl.constexpr,
    PAGE: tl.constexpr,
    STEPS_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
    UNIT: tl.constexpr,
    TABLED: tl.constexpr,
    AT_ZERO: tl.constexpr,
) -> None:
    """Reads all moved rows of its columns, waits for the whole program, writes them. Strides are in units."""
    n = tl.program_id(2).to(tl.int64)
    layer = tl.program_id(1).to(tl.int64)
    count = tl.load(counts + n)
    step = tl.arange(0, STEPS_PAD)
    node = tl.load(nodes + n * steps + step, mask=(step < steps) & (step < count), other=0)
    context = tl.zeros([], tl.int64)
    if not AT_ZERO:
        context += tl.load(context_lengths + n).to(tl.int64)
    source = context + node
    target = context + step
    moved = (step < steps) & (step < count) & (node > step) & (source < capacity)
    if TABLED:
        base = tl.load(addresses + layer).to(tl.pointer_type(UNIT))
    else:
        base = stacked.to(tl.pointer_type(UNIT)) + layer * stride_layer
    if PAGE == 0:
        base += n * stride_page
        source_at = source * stride_row
        target_at = target * stride_row
    else:
        block_table += n * stride_table
        source_page = tl.load(block_table + source // PAGE, mask=moved, other=0).to(tl.int64)
        target_page = tl.load(block_table + target // PAGE, mask=moved, other=0).to(tl.int64)
        source_at = source_page * stride_page + source % PAGE * stride_row
        target_at = target_page * stride_page + target % PAGE * stride_row
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column_at = (column // HEAD).to(tl.int64) * stride_head + column % HEAD
    mask = moved[:, None] & (column < width)[None, :]
    rows = tl.load(base + source_at[:, None] + column_at[None, :], mask=mask)
    tl.debug_barrier()
    tl.store(base + target_at[:, None] + column_at[None, :], rows, mask=mask)
