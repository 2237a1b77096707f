"""The best token of a row, in one small launch that takes another small step along."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def highest_kernel(
    logits: tl.tensor,
    out: tl.tensor,
    source: tl.tensor,
    copy: tl.tensor,
    stride: tl.tensor,
    vocab: tl.tensor,
    BLOCK: tl.constexpr,
    BEHIND: tl.constexpr,
    COPY: tl.constexpr,
) -> None:
    """One row: its highest logit's token, the lowest of equals, NaN as -inf, to out[BEHIND + row].

    COPY: one number is copied along.
    """
    row = tl.program_id(0).to(tl.int64)
    token = tl.arange(0, BLOCK)
    x = tl.load(logits + row * stride + token, mask=token < vocab, other=float("-inf")).to(tl.float32)
    x = tl.where(x != x, float("-inf"), x)
    best = tl.max(x, axis=0)
    first = tl.min(tl.where((x == best) & (token < vocab), token, BLOCK), axis=0)
    tl.store(out + row + BEHIND, first.to(tl.int64))
    if COPY:
        tl.store(copy, tl.load(source), mask=row == 0)
