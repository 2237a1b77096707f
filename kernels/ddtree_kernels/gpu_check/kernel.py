"""The smallest Triton kernel: whether Triton itself works."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_one(x: tl.tensor, y: tl.tensor, n: int, BLOCK: tl.constexpr) -> None:
    """y = x + 1 for n floats."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)
