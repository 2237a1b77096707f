"""The small steps of a captured round in one launch each: the best token of a row, and the round's end."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def highest_kernel(
    logits: tl.tensor,
    root: tl.tensor,
    out: tl.tensor,
    stride: tl.tensor,
    vocab: tl.tensor,
    BLOCK: tl.constexpr,
    BEHIND: tl.constexpr,
) -> None:
    """One row: its highest logit's token, the lowest of equals, NaN as -inf. BEHIND: 1 = the root is copied ahead."""
    row = tl.program_id(0).to(tl.int64)
    token = tl.arange(0, BLOCK)
    x = tl.load(logits + row * stride + token, mask=token < vocab, other=float("-inf")).to(tl.float32)
    x = tl.where(x != x, float("-inf"), x)
    best = tl.max(x, axis=0)
    first = tl.min(tl.where((x == best) & (token < vocab), token, BLOCK), axis=0)
    tl.store(out + row + BEHIND, first.to(tl.int64))
    if BEHIND > 0:
        tl.store(out + row, tl.load(root), mask=row == 0)


@triton.jit
def settle_kernel(
    nodes: tl.tensor,
    counts: tl.tensor,
    bonus: tl.tensor,
    chosen: tl.tensor,
    features: tl.tensor,
    pending: tl.tensor,
    figures: tl.tensor,
    rows: tl.tensor,
    turn: tl.tensor,
    length: tl.tensor,
    before: tl.tensor,
    root: tl.tensor,
    width: tl.tensor,
    columns: tl.tensor,
    SLOTS: tl.constexpr,
    WIDTH_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
    SHADOW: tl.constexpr,
) -> None:
    """Program (k, c): columns c of the k-th accepted node's features to row k of pending. The last row does the rest.

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
    if (step == tl.num_programs(0) - 1) & (tl.program_id(1) == 0):
        # all loads before the first store, so that they wait together
        number, old, next_root = tl.load(turn), tl.load(length), tl.load(bonus)
        lane = tl.arange(0, WIDTH_PAD)
        took = lane < tl.minimum(count, width)
        node = tl.load(nodes + lane, mask=took, other=0)
        token = tl.load(chosen + node, mask=took, other=0)
        would, wrong = count.to(tl.int64), tl.full([], 0, tl.int64)
        if SHADOW:
            would, wrong = tl.load(figures), tl.load(figures + 1)
        output = rows + number % SLOTS * (width + 3)
        tl.store(output + lane, token, mask=lane < width)
        tl.store(output + width, count.to(tl.int64))
        tl.store(output + width + 1, would)
        tl.store(output + width + 2, wrong)
        tl.store(turn, number + 1)
        tl.store(before, old)
        tl.store(length, old + count)
        tl.store(root, next_root)
