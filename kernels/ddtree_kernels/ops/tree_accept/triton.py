"""Kernels of tree_accept: argmax over a split vocabulary, the walk over a tree, the walk along a chain."""

from __future__ import annotations

import triton
import triton.language as tl

from ddtree_kernels.ops.pdl import follow, lead

LOWEST = tl.constexpr(-9223372036854775808)


@triton.jit
def argmax_kernel(
    logits: tl.tensor,
    part: tl.tensor,
    stride_n: tl.tensor,
    stride_t: tl.tensor,
    nodes: tl.tensor,
    vocab: tl.tensor,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One split of one row: (order of its best logit, ~token) in one int64, so that the parts' maximum decides."""
    lead(PDL)
    row = tl.program_id(1).to(tl.int64)
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    base = logits + (row // nodes) * stride_n + (row % nodes) * stride_t
    x = tl.load(base + token, mask=token < vocab, other=float("-inf")).to(tl.float32)
    x = tl.where(x != x, float("-inf"), x) + 0.0
    best = tl.max(x, axis=0)
    first = tl.min(tl.where((x == best) & (token < vocab), token, 0x7FFFFFFF), axis=0)
    bits = best.to(tl.int32, bitcast=True)
    order = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    both = (order.to(tl.int64) << 32) | (0x7FFFFFFF - first).to(tl.int64)
    tl.store(part + row * tl.num_programs(0) + tl.program_id(0), both)


@triton.jit
def _wanted(
    target: tl.tensor, part: tl.tensor, row: tl.tensor, splits: tl.tensor, SPLITS_PAD: tl.constexpr
) -> tl.tensor:
    """The target's token at this row of [N * T]: given, or the best of the row's parts."""
    if SPLITS_PAD == 0:
        token = tl.load(target + row).to(tl.int64)
    else:
        split = tl.arange(0, SPLITS_PAD)
        both = tl.load(part + row * splits + split, mask=split < splits, other=LOWEST)
        token = 0x7FFFFFFF - (tl.max(both, axis=0) & 0xFFFFFFFF)
    return token


@triton.jit
def tree_walk_kernel(
    tokens: tl.tensor,
    parents: tl.tensor,
    target: tl.tensor,
    part: tl.tensor,
    nodes_out: tl.tensor,
    counts_out: tl.tensor,
    bonus_out: tl.tensor,
    splits: tl.tensor,
    nodes: tl.tensor,
    depth: tl.tensor,
    NODES_PAD: tl.constexpr,
    DEPTH_PAD: tl.constexpr,
    SPLITS_PAD: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One request: at each step every node says whether it is the wanted child; the lowest such index is next."""
    follow(PDL)
    n = tl.program_id(0).to(tl.int64)
    node = tl.arange(0, NODES_PAD)
    token = tl.load(tokens + n * nodes + node, mask=node < nodes, other=-1)
    parent = tl.load(parents + n * nodes + node, mask=node < nodes, other=-1)
    step = tl.arange(0, DEPTH_PAD)
    path = tl.where(step == 0, 0, -1)
    at = tl.full([], 0, tl.int32)
    count = tl.full([], 1, tl.int32)
    wanted = _wanted(target, part, n * nodes, splits, SPLITS_PAD)
    going = depth > 0
    while going:
        fits = (parent == at) & (token == wanted)
        next_node = tl.min(tl.where(fits, node, NODES_PAD), axis=0)
        found = next_node < NODES_PAD
        at = tl.where(found, next_node, at)
        path = tl.where((step == count) & found, at, path)
        count += found.to(tl.int32)
        wanted = _wanted(target, part, n * nodes + at, splits, SPLITS_PAD)
        going = found & (count <= depth)
    tl.store(nodes_out + n * (depth + 1) + step, path, mask=step <= depth)
    tl.store(counts_out + n, count)
    tl.store(bonus_out + n, wanted)


@triton.jit
def linear_walk_kernel(
    draft: tl.tensor,
    target: tl.tensor,
    part: tl.tensor,
    nodes_out: tl.tensor,
    counts_out: tl.tensor,
    bonus_out: tl.tensor,
    splits: tl.tensor,
    depth: tl.tensor,
    DEPTH_PAD: tl.constexpr,
    SPLITS_PAD: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One request: the first position where draft and target differ."""
    follow(PDL)
    n = tl.program_id(0).to(tl.int64)
    step = tl.arange(0, DEPTH_PAD)
    token = tl.load(draft + n * depth + step, mask=step < depth, other=-1).to(tl.int64)
    row = n * (depth + 1) + step
    if SPLITS_PAD == 0:
        wanted = tl.load(target + row, mask=step < depth, other=-2).to(tl.int64)
    else:
        split = tl.arange(0, SPLITS_PAD)
        real = (step < depth)[:, None] & (split < splits)[None, :]
        both = tl.load(part + row[:, None] * splits + split[None, :], mask=real, other=LOWEST)
        wanted = 0x7FFFFFFF - (tl.max(both, axis=1) & 0xFFFFFFFF)
    wrong = (token != wanted) | (step >= depth)
    count = tl.min(tl.where(wrong, step, depth), axis=0) + 1
    tl.store(nodes_out + n * (depth + 1) + step, tl.where(step < count, step, -1), mask=step <= depth)
    tl.store(counts_out + n, count)
    tl.store(bonus_out + n, _wanted(target, part, n * (depth + 1) + count - 1, splits, SPLITS_PAD))
