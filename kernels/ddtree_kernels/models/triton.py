"""Kernels of a layer's small steps: norms with what is added before them, heads turned and put away, the gated unit.

A row's result depends on that row alone, so the same token gives the same numbers in a batch of any width.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _normed(x: tl.tensor, weight: tl.tensor, lane: tl.tensor, size: tl.tensor, eps: tl.tensor) -> tl.tensor:
    """x by its root mean square, times the weight; lanes from size on are 0 in x."""
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / size + eps)
    return x * scale * tl.load(weight + lane, mask=lane < size, other=0.0).to(tl.float32)


@triton.jit
def embed_kernel(
    tokens: tl.tensor,
    first: tl.tensor,
    table: tl.tensor,
    weight: tl.tensor,
    older: tl.tensor,
    older_weight: tl.tensor,
    out: tl.tensor,
    normed: tl.tensor,
    context: tl.tensor,
    size: tl.tensor,
    eps: tl.tensor,
    BLOCK: tl.constexpr,
    FIRST: tl.constexpr,
) -> None:
    """One row. Below `context`: an older row, normed. Behind: a token's embedding, and it normed.

    A token below 0 is padding and reads token 0; with FIRST the token of the first row lies apart from the others.
    """
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    here = lane < size
    if row < context:
        y = _normed(
            tl.load(older + row * size + lane, mask=here, other=0.0).to(tl.float32), older_weight, lane, size, eps
        )
    else:
        own = row - context
        token = tl.load(tokens + own).to(tl.int64)
        if FIRST:
            token = tl.where(own == 0, tl.load(first).to(tl.int64), token)
        x = tl.load(table + tl.maximum(token, 0) * size + lane, mask=here, other=0.0)
        tl.store(out + own * size + lane, x, mask=here)
        y = _normed(x.to(tl.float32), weight, lane, size, eps)
    tl.store(normed + row * size + lane, y.to(normed.dtype.element_ty), mask=here)


@triton.jit
def norm_kernel(
    x: tl.tensor,
    delta: tl.tensor,
    weight: tl.tensor,
    total: tl.tensor,
    normed: tl.tensor,
    stride_x: tl.tensor,
    stride_total: tl.tensor,
    size: tl.tensor,
    eps: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """One row: x + delta, rounded and kept; then the norm of it."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    here = lane < size
    value = tl.load(x + row * stride_x + lane, mask=here, other=0.0).to(tl.float32)
    value += tl.load(delta + row * size + lane, mask=here, other=0.0).to(tl.float32)
    kept = value.to(total.dtype.element_ty)
    tl.store(total + row * stride_total + lane, kept, mask=here)
    y = _normed(kept.to(tl.float32), weight, lane, size, eps)
    tl.store(normed + row * size + lane, y.to(normed.dtype.element_ty), mask=here)


@triton.jit
def heads_kernel(
    packed: tl.tensor,
    norms: tl.tensor,
    rates: tl.tensor,
    depths: tl.tensor,
    start: tl.tensor,
    before: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    query: tl.tensor,
    stride_row: tl.tensor,
    context: tl.tensor,
    factor: tl.tensor,
    eps: tl.tensor,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    CHAIN: tl.constexpr,
) -> None:
    """One head of one row of packed queries, keys and values: query and key normed and turned; key and value put away.

    Rows below `context` are old ones, at rows and positions before + row, unless that is not below start; the others
    lie at start + i, at position start + i (CHAIN) or start + depths[i].
    """
    row = tl.program_id(0)
    head = tl.program_id(1)
    first = tl.load(start).to(tl.int64)
    old = row < context
    own = tl.maximum(row - context, 0)
    place = first + own
    if CHAIN:
        position = place
    else:
        position = first + tl.load(depths + own).to(tl.int64)
    if old:
        place = tl.load(before).to(tl.int64) + row
        position = place
    wanted = (not old) | ((head >= HEADS) & (place < first))
    half: tl.constexpr = SIZE // 2
    lane = tl.arange(0, half)
    source = packed + row.to(tl.int64) * ((HEADS + 2 * KV_HEADS) * SIZE) + head * SIZE + lane
    low = tl.load(source)
    high = tl.load(source + half)
    if head < HEADS + KV_HEADS:
        a, b = low.to(tl.float32), high.to(tl.float32)
        scale = tl.rsqrt((tl.sum(a * a, axis=0) + tl.sum(b * b, axis=0)) / SIZE + eps)
        a = a * scale * tl.load(norms + head * SIZE + lane).to(tl.float32)
        b = b * scale * tl.load(norms + head * SIZE + half + lane).to(tl.float32)
        angle = position.to(tl.float32) * tl.load(rates + lane)
        cosine, sine = tl.cos(angle) * factor, tl.sin(angle) * factor
        low = (a * cosine - b * sine).to(low.dtype)
        high = (b * cosine + a * sine).to(high.dtype)
    if head < HEADS:
        target = query + (own.to(tl.int64) * HEADS + head) * SIZE + lane
    elif head < HEADS + KV_HEADS:
        target = keys + place * stride_row + (head - HEADS) * SIZE + lane
    else:
        target = values + place * stride_row + (head - HEADS - KV_HEADS) * SIZE + lane
    tl.store(target, low, mask=wanted)
    tl.store(target + half, high, mask=wanted)


@triton.jit
def gate_kernel(gate_up: tl.tensor, out: tl.tensor, size: tl.tensor, BLOCK: tl.constexpr) -> None:
    """One block of one row: silu(gate) * up, of gate and up side by side."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_up + row * 2 * size + lane, mask=lane < size, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * size + size + lane, mask=lane < size, other=0.0).to(tl.float32)
    y = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * size + lane, y.to(out.dtype.element_ty), mask=lane < size)
