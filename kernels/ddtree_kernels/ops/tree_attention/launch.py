"""Launches of tree_attention's kernels: block shapes, how many splits, scratch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ddtree_kernels.ops.checks import next_power_of_two
from ddtree_kernels.ops.tree_attention import hopper_launch
from ddtree_kernels.ops.tree_attention import triton as kernels
from ddtree_kernels.ops.tree_attention.parts import LOG2_E, capability, join, make_parts, multiprocessors

MOST_SPLITS = 128
REDUCE = 1.0  # tiles whose time a reduction takes
REDUCE_EACH = 0.07  # and each of the parts that it joins
TINY_LENGTH = 1024  # rows of a request up to which a tiny shape takes blocks of 16 rows; measured at 512
SHORT_LENGTH = 4096  # and up to which one that just misses 64 rows takes blocks of 64; measured at 2070
SMALL_SPLITS = 8  # of both
EARLY_ROWS = 8192  # up to which the split kernel is launched before what precedes it has ended


@dataclass(frozen=True)
class Blocks:
    """Shape of one program: rows, keys, warps, pipeline stages; how many programs a multiprocessor holds; the number of
    splits measured best with it, None = by splits_for.
    """

    m: int
    n: int
    warps: int
    stages: int
    resident: int
    splits: int | None = None


def blocks_for(rows: int, size: int, element: int) -> Blocks:
    """Measured on an H200 for 2-byte types (README.md); 4-byte types only have to fit."""
    if element == 4:
        return Blocks(min(64, max(16, next_power_of_two(rows))), 32, 4, 1 if size == 256 else 2, 1)
    if rows <= 32:
        return Blocks(max(16, next_power_of_two(rows)), 64, 4, 2 if size == 256 else 3, 2)
    if rows <= 64:
        return Blocks(64, 64, 4, 2 if size == 256 else 3, 1 if size == 256 else 2)
    if size < 256 and 64 * -(-rows // 64) < 0.85 * 128 * -(-rows // 128):  # 128 would be too empty
        return Blocks(64, 64, 4, 3, 2)
    return Blocks(128, 64, 8, 2 if size == 256 else 3, 1)


def small_blocks(rows: int, size: int, element: int, groups: int, longest: int, processors: int) -> Blocks | None:
    """The choice for few rows over few keys, None where blocks_for's was not beaten on an H200 (README.md).

    groups: key heads of all requests; longest: the most rows of a request. Only what was measured is taken: heads of 64
    whose blocks of 16 rows fit into one wave of two programs a multiprocessor, and heads of 128 whose two blocks of 64
    rows give nearly every multiprocessor a program.
    """
    if element != 2:
        return None
    of_16, of_64 = (-(-rows // m) * groups * SMALL_SPLITS for m in (16, 64))  # programs
    if size == 64 and longest <= TINY_LENGTH and of_16 <= 2 * processors:
        return Blocks(16, 64, 4, 2, 2, SMALL_SPLITS)
    if size == 128 and longest <= SHORT_LENGTH and 64 < rows <= 128 and processors / 2 < of_64 <= processors:
        return Blocks(64, 64, 4, 3, 1, SMALL_SPLITS)
    return None


def splits_for(programs: int, tiles: int, slots: int) -> int:
    """How many splits make the launch shortest: full waves of programs, each with a few tiles' worth of overhead.

    More than one split needs the reduction. Its cost is from a key head of size 64 at 150 to 900 keys on an H200: 4.2
    µs and 0.53 a tile without a reduction, which takes up to 0.5 more and 0.04 for each split.
    """
    best, least = 1, math.inf
    for splits in range(1, min(MOST_SPLITS, tiles) + 1):
        waves = -(-programs * splits // slots)
        cost = waves * (-(-tiles // splits) + 3) + (REDUCE_EACH * splits + REDUCE if splits > 1 else 0)
        if cost < least:
            best, least = splits, cost
    return best


def tree_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    visibility: torch.Tensor,
    context_lengths: torch.Tensor,
    node_counts: torch.Tensor | None,
    block_table: torch.Tensor | None,
    depths: torch.Tensor | None,
    scale: float | None,
    sliding_window: int | None,
    soft_cap: float | None,
    with_log: bool,
    max_length: int | None,
    shape: Blocks | None = None,
    splits: int | None = None,
    hopper: bool | None = None,
    pdl: bool | None = None,
    early: bool | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """As the public function, arguments unchecked; one or two launches.

    shape, splits, hopper (whether the Gluon kernel is taken; None = where it is measured to be faster), pdl (whether
    the second launch overlaps the first) and early (whether the first overlaps what is before it, up to its first read;
    None = Triton's kernel, if pdl, up to EARLY_ROWS; it gains 0.1 to 0.4 µs there and nothing above) are for tuning and
    tests.
    """
    batch, nodes, heads, size = query.shape
    kv_heads = key_cache.shape[2]
    group = heads // kv_heads
    page = 0 if block_table is None else key_cache.shape[1]
    capacity = key_cache.shape[1] if block_table is None else page * block_table.shape[1]
    longest = min(capacity, max_length or capacity)
    scale = size**-0.5 if scale is None else scale
    pdl = capability(query.device.index or 0) >= (9, 0) if pdl is None else pdl
    if hopper is None:
        plain = sliding_window is None and soft_cap is None
        hopper = hopper_launch.pays(query, key_cache, longest) and hopper_launch.serves(
            query, key_cache, value_cache, block_table, plain
        )
    if hopper:
        parts = hopper_launch.split(
            query, key_cache, value_cache, visibility, context_lengths, node_counts, scale, with_log, longest, splits,
            bool(early),
        )  # fmt: skip
        join(parts, group, pdl)
        return parts.out, parts.log_sum
    if sliding_window is not None:
        longest = min(longest, sliding_window + nodes)
    rows, element, processors = nodes * group, query.element_size(), multiprocessors(query.device.index or 0)
    if shape is None:
        small = small_blocks(rows, size, element, kv_heads * batch, longest, processors)
        shape = small or blocks_for(rows, size, element)
    blocks = -(-rows // shape.m)
    tiles = -(-longest // shape.n) + 1
    if splits is None:
        best = shape.splits or splits_for(blocks * kv_heads * batch, tiles, processors * shape.resident)
        splits = min(best, tiles)
    early = pdl and longest <= EARLY_ROWS if early is None else early
    parts = make_parts(query, splits, with_log)
    kernels.split_kernel[(blocks * kv_heads * splits, batch)](
        query,
        key_cache,
        value_cache,
        visibility,
        context_lengths,
        context_lengths if node_counts is None else node_counts,
        context_lengths if block_table is None else block_table,
        context_lengths if depths is None else depths,
        parts.part_out,
        parts.part_log,
        parts.out,
        parts.part_log if parts.log_sum is None else parts.log_sum,
        query.stride(0),
        query.stride(1),
        query.stride(2),
        key_cache.stride(0),
        key_cache.stride(1),
        key_cache.stride(2),
        0 if block_table is None else block_table.stride(0),
        capacity,
        scale * LOG2_E if soft_cap is None else scale / soft_cap,
        0.0 if soft_cap is None else soft_cap,
        sliding_window or 0,
        nodes,
        visibility.shape[2],
        splits,
        blocks,
        HEADS=heads,
        GROUP=group,
        SIZE=size,
        PAGE=page,
        BLOCK_M=shape.m,
        BLOCK_N=shape.n,
        WINDOWED=sliding_window is not None,
        CAPPED=soft_cap is not None,
        COUNTED=node_counts is not None,
        DIRECT=splits == 1,
        WITH_LOG=with_log,
        EXACT=query.dtype == torch.float32,
        PDL=pdl or early,
        num_warps=shape.warps,
        num_stages=shape.stages,
        **({"launch_pdl": True} if early else {}),
    )
    join(parts, group, pdl)
    return parts.out, parts.log_sum
