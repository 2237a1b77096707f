"""The end of a captured round in one launch: what it emits, the place moved on, the accepted features kept."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def settle_kernel(
    nodes: tl.tensor,
    counts: tl.tensor,
    bonus: tl.tensor,
    chosen: tl.tensor,
    features: tl.tensor,
    pending: tl.tensor,
    output: tl.tensor,
    length: tl.tensor,
    before: tl.tensor,
    root: tl.tensor,
    width: tl.tensor,
    columns: tl.tensor,
    WIDTH_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
    EMIT: tl.constexpr,
) -> None:
    """Program (k, c): columns c of the k-th accepted node's features to row k of pending. The first one does the rest.

    The token chosen after an accepted node is the next node's, and after the last one the bonus.
    """
    step = tl.program_id(0)
    count = tl.load(counts)
    if step < count:
        node = tl.load(nodes + step).to(tl.int64)
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        here = column < columns
        value = tl.load(features + node * columns + column, mask=here)
        tl.store(pending + step.to(tl.int64) * columns + column, value, mask=here)
    if (step == 0) & (tl.program_id(1) == 0):
        if EMIT:
            lane = tl.arange(0, WIDTH_PAD)
            took = lane < tl.minimum(count, width)
            node = tl.load(nodes + lane, mask=took, other=0)
            tl.store(output + lane, tl.load(chosen + node, mask=took, other=0), mask=lane < width)
            tl.store(output + width, count.to(tl.int64))
            tl.store(output + width + 1, count.to(tl.int64))
            tl.store(output + width + 2, tl.full([], 0, tl.int64))
        old = tl.load(length)
        tl.store(before, old)
        tl.store(length, old + count)
        tl.store(root, tl.load(bonus))
