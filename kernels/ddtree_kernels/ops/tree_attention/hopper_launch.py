"""Launches of the Gluon kernel for Hopper: when it may serve, its shapes, how the context is split."""

from __future__ import annotations

import math

import torch
import triton

from ddtree_kernels.ops.tree_attention.parts import LOG2_E, Parts, capability, make_parts, multiprocessors

ROWS = 64  # packed rows of one consumer warpgroup
WARPGROUPS = 3  # consumers of one program
KEYS = 64  # of a tile
# tiles of keys and of values in flight; up to 3 warpgroups share a row tile, which needs 5 (README.md)
RING = 5
START_REGISTERS = 128  # every thread's at launch
REGISTERS = 160  # a consumer thread's: what 64 Ki less the producer's leave, in steps of 8
START = 25  # products of 64 rows and 64 keys whose time the start and the end of a program take
MOST_SPLITS = 128
# rows of a request times row tiles and key heads from which the kernel pays: lost at 84 520, won at 313 480
LEAST_WORK = 300_000
LEAST_ROW_TILES = 3
GLUON_OF = ((3, 6),)  # Triton releases whose Gluon the kernel is written for: the interface still moves


def pays(query: torch.Tensor, key_cache: torch.Tensor, longest: int) -> bool:
    """Whether the kernel is faster than Triton's, as measured (README.md): more rows than one tile of Triton's, and so
    many keys that they make up for a program's longer start. Other head sizes were not measured.
    """
    _, nodes, heads, size = query.shape
    kv_heads = key_cache.shape[2]
    row_tiles = -(-nodes * (heads // kv_heads) // ROWS)
    return size == 128 and row_tiles >= LEAST_ROW_TILES and longest * row_tiles * kv_heads >= LEAST_WORK


def serves(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor | None,
    plain: bool,
) -> bool:
    """Whether the kernel can run: this Triton, Hopper, 2-byte types, a contiguous cache of 16-byte strides.

    plain: neither a sliding window nor a soft cap.
    """
    release = tuple(int(part) for part in triton.__version__.split(".")[:2])
    return (
        plain
        and block_table is None
        and release in GLUON_OF
        and query.is_cuda
        and capability(query.device.index or 0)[0] == 9
        and query.element_size() == 2
        and query.shape[3] in (64, 128)
        and key_cache.data_ptr() % 16 == 0
        and value_cache.data_ptr() % 16 == 0
        and all(stride > 0 and stride * 2 % 16 == 0 for stride in key_cache.stride()[:3])
    )


def splits_for(programs: int, tiles: int, slots: int, rows: float) -> int:
    """How many splits make the launch shortest: waves of programs, each `rows` products a tile and some overhead."""
    best, least = 1, math.inf
    for splits in range(1, min(MOST_SPLITS, tiles) + 1):
        waves = -(-programs * splits // slots)
        cost = waves * (-(-tiles // splits) * rows + START) + 0.1 * splits
        if cost < least:
            best, least = splits, cost
    return best


def sharers(row_tiles: int, blocks: int) -> int:
    """How many warpgroups of the programs share the last row tile."""
    return WARPGROUPS * blocks - row_tiles + 1


def split(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    visibility: torch.Tensor,
    context_lengths: torch.Tensor,
    node_counts: torch.Tensor | None,
    scale: float,
    with_log: bool,
    longest: int,
    splits: int | None,
    early: bool,
) -> Parts:
    """Launches the split kernel; arguments as launch.tree_attention's, longest = the most rows of a request."""
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    from ddtree_kernels.ops.tree_attention import hopper

    batch, nodes, heads, size = query.shape
    kv_heads = key_cache.shape[2]
    group = heads // kv_heads
    row_tiles = -(-nodes * group // ROWS)
    blocks = -(-row_tiles // WARPGROUPS)
    shared = sharers(row_tiles, blocks)
    tiles = -(-longest // KEYS) + 1
    if splits is None:
        slots = multiprocessors(query.device.index or 0)
        splits = splits_for(blocks * kv_heads * batch, tiles, slots, row_tiles / blocks)
    parts = make_parts(query, splits * shared, with_log, shared, (row_tiles - 1) * ROWS)
    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)
    box = [1, KEYS, 1, size]
    maps = [
        TensorDescriptor(cache, list(cache.shape), list(cache.stride()), box, layout)
        for cache in (key_cache, value_cache)
    ]
    hopper.split_kernel[(blocks * kv_heads * splits, batch)](
        *maps,
        query,
        visibility,
        context_lengths,
        context_lengths if node_counts is None else node_counts,
        parts.part_out,
        parts.part_log,
        parts.out,
        parts.part_log if parts.log_sum is None else parts.log_sum,
        query.stride(0),
        query.stride(1),
        query.stride(2),
        key_cache.shape[1],
        scale * LOG2_E,
        nodes,
        visibility.shape[2],
        splits,
        blocks,
        row_tiles,
        HEADS=heads,
        GROUP=group,
        SIZE=size,
        KEYS=KEYS,
        KEY_RING=RING,
        VALUE_RING=RING,
        REGISTERS=REGISTERS,
        COUNTED=node_counts is not None,
        DIRECT=parts.direct,
        WITH_LOG=with_log and parts.direct,
        PDL=True,
        num_warps=4,
        maxnreg=START_REGISTERS,
        **({"launch_pdl": True} if early else {}),
    )
    return parts
