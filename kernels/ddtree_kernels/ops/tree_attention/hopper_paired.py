"""A variant of hopper.py whose first two consumer warpgroups run the same code; off until it is measured.

A program is a producer warp, 8 warps with two row tiles and 4 with a third or a share of the last. Step s of the one
ring holds the keys of tile s and the values of the tile before, so that a turn takes one wait and gives back once: both
cost a barrier of all warps of a partition. README.md proves that the ring cannot deadlock.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ddtree_kernels.ops.tree_attention.hopper import (
    LOG2_E,
    ROWS,
    TREE_WEIGHT,
    _boundary,
    _faded,
    _masked,
    _row0,
    _weights,
    _word,
)


@gluon.jit
def _wait(full: gl.shared_memory_descriptor, step: gl.tensor, RING: gl.constexpr) -> None:
    mbarrier.wait(full.index(step % RING), (step // RING) & 1)


@gluon.jit
def _pass_over(
    full: gl.shared_memory_descriptor,
    empty: gl.shared_memory_descriptor,
    first: gl.tensor,
    stop: gl.tensor,
    RING: gl.constexpr,
) -> None:
    """Waits for steps first..stop-1, which this consumer does not use, and gives them back."""
    for step in range(first, stop):
        _wait(full, step, RING)
        mbarrier.arrive(empty.index(step % RING), count=1)


@gluon.jit
def _fetch(
    key_map: tma.tensor_descriptor,
    value_map: tma.tensor_descriptor,
    keys: gl.shared_memory_descriptor,
    values: gl.shared_memory_descriptor,
    bars: gl.tuple,
    where: gl.tuple,
    KEYS: gl.constexpr,
    RING: gl.constexpr,
) -> None:
    """The producer: K0, K1 with V0, K2 with V1, ... of the split's tiles, from the last to the first."""
    full, empty = bars
    n, kv_head, context, _, stop, tiles = where
    context_tiles = (context + KEYS - 1) // KEYS
    one: gl.constexpr = key_map.block_type.nbytes
    for step in range(gl.where(tiles > 0, tiles + 1, 0)):
        slot = step % RING
        mbarrier.wait(empty.index(slot), ((step // RING) & 1) ^ 1)
        if (step == 0) | (step == tiles):
            mbarrier.expect(full.index(slot), one)
        else:
            mbarrier.expect(full.index(slot), 2 * one)
        if step < tiles:
            row = _row0(stop - 1 - step, context, context_tiles, KEYS)
            tma.async_copy_global_to_shared(key_map, [n, row, kv_head, 0], full.index(slot), keys.index(slot))
        if step > 0:
            row = _row0(stop - step, context, context_tiles, KEYS)
            tma.async_copy_global_to_shared(value_map, [n, row, kv_head, 0], full.index(slot), values.index(slot))


@gluon.jit
def _clear_dead(
    slot: gl.shared_memory_descriptor,
    tile: gl.tensor,
    context: gl.tensor,
    count: gl.tensor,
    KEYS: gl.constexpr,
    SIZE: gl.constexpr,
    WARPS: gl.constexpr,
) -> None:
    """Zeroes rows of a value tile beyond the last live one: weight 0 times NaN would be NaN."""
    context_tiles = (context + KEYS - 1) // KEYS
    live = context + count - _row0(tile, context, context_tiles, KEYS)
    if live < KEYS:
        layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // SIZE, SIZE // 8], [WARPS, 1], [1, 0])
        for part in gl.static_range(KEYS // 32):
            piece = slot.slice(part * 32, 32)
            row = part * 32 + gl.arange(0, 32, layout=gl.SliceLayout(1, layout))
            piece.store(gl.where((row < live)[:, None], piece.load(layout), 0.0))
        fence_async_shared()
        gl.thread_barrier()


@gluon.jit
def _turn(
    q: gl.shared_memory_descriptor,
    keys: gl.shared_memory_descriptor,
    values: gl.shared_memory_descriptor,
    bars: gl.tuple,
    own: gl.tuple,
    j: gl.tensor,
    stride: gl.tensor,
    more: gl.tensor,
    p: gl.tensor,
    top: gl.tensor,
    total: gl.tensor,
    acc: gl.tensor,
    scale: gl.tensor,
    masked: gl.tensor,
    KEYS: gl.constexpr,
    SIZE: gl.constexpr,
    RING: gl.constexpr,
    WARPS: gl.constexpr,
    s_layout: gl.constexpr,
    p_layout: gl.constexpr,
) -> gl.tuple:
    """As hopper.py's: own tile j, whose step is there as is that of the values of the own tile before.

    8 warps give back the step before this one once their scores are there: Gluon puts a barrier before an arrival and
    one before what comes next in shared memory, which there are one and the same moment.
    """
    full, empty = bars
    visibility, node, stop, context, count, capacity, words = own
    before = j - stride
    key_slot = j % RING
    value_slot = (before + 1) % RING
    k = keys.index(key_slot).reshape([KEYS, SIZE])
    s = gl.zeros([WARPS * 16, KEYS], gl.float32, s_layout)
    v = values.index(value_slot).reshape([KEYS, SIZE])
    s = warpgroup_mma(q, k.permute((1, 0)), s, use_acc=False, is_async=True)
    if masked:
        _clear_dead(v, stop - 1 - before, context, count, KEYS, SIZE, WARPS)
    acc = warpgroup_mma(p, v, acc, is_async=True)
    s = warpgroup_mma_wait(1, deps=(s,))
    if WARPS == 8:
        mbarrier.arrive(empty.index(before % RING), count=1)
    if masked:
        low = _word(visibility, node, stop - 1 - j, context, count, capacity, words, 0, KEYS)
        high = _word(visibility, node, stop - 1 - j, context, count, capacity, words, 1, KEYS)
        s = _masked(s, low, high, KEYS, s_layout)
    weights, top, total, fade = _weights(s, top, total, scale)
    _wait(full, j + 1, RING)
    # the old weights' registers are free only now
    acc, weights = warpgroup_mma_wait(0, deps=(acc, weights))
    if WARPS == 4:
        mbarrier.arrive(empty.index(key_slot), count=1)
    if WARPS == 4 and stride > 1:
        mbarrier.arrive(empty.index(value_slot), count=1)
        if more:
            _pass_over(full, empty, j + 2, j + stride, RING)
            _wait(full, j + stride, RING)
    acc = _faded(acc, fade, SIZE)
    p = gl.convert_layout(weights.to(v.dtype), p_layout)
    return p, top, total, acc


@gluon.jit
def _attend(
    common: gl.tuple,
    q: gl.shared_memory_descriptor,
    at: gl.tuple,
    WARPS: gl.constexpr,
    HEADS: gl.constexpr,
    GROUP: gl.constexpr,
    SIZE: gl.constexpr,
    KEYS: gl.constexpr,
    RING: gl.constexpr,
    DIRECT: gl.constexpr,
    WITH_LOG: gl.constexpr,
) -> None:
    """A consumer of 64 or 128 packed rows over its tiles of the split: at = its first row tile, the first of its tiles
    and how many it goes on by (its row tile is then shared by as many consumers).
    """
    keys, values, bars, where, rows, tensors, strides, numbers = common
    full, empty = bars
    n, kv_head, context, count, stop, tiles = where
    row_tile, first, stride = at
    parts_of_last, split, splits = rows
    query, visibility, part_out, part_log, out, log_sum = tensors
    stride_qn, stride_qt, stride_qh = strides
    scale, capacity, nodes, words = numbers
    dtype: gl.constexpr = keys.dtype

    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, KEYS, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, SIZE, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    q_layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // SIZE, SIZE // 8], [WARPS, 1], [1, 0])
    held: gl.constexpr = WARPS * 16  # rows

    mine = (tiles - first + stride - 1) // stride  # own tiles: first, first + stride, ...
    masked = gl.minimum(gl.maximum(stop - context // KEYS, 0), tiles)  # tiles that need a mask come first
    masked_mine = (masked - first + stride - 1) // stride

    q_row = row_tile * ROWS + gl.arange(0, held, layout=gl.SliceLayout(1, q_layout))
    q_node = q_row // GROUP
    q_head = kv_head * GROUP + q_row % GROUP
    q_at = q_node.to(gl.int64) * stride_qt + q_head.to(gl.int64) * stride_qh
    q_column = gl.arange(0, SIZE, layout=gl.SliceLayout(0, q_layout))
    n_long = n.to(gl.int64)
    q.store(
        gl.load(
            query + n_long * stride_qn + q_at[:, None] + q_column[None, :], mask=(q_node < count)[:, None], other=0.0
        )
    )
    fence_async_shared()
    gl.thread_barrier()

    row = row_tile * ROWS + gl.arange(0, held, layout=gl.SliceLayout(1, s_layout))
    node = row // GROUP
    visibility += n_long * nodes * words
    top = gl.full([held], float("-inf"), gl.float32, gl.SliceLayout(1, s_layout))
    total = gl.zeros([held], gl.float32, gl.SliceLayout(1, s_layout))
    acc = gl.zeros([held, SIZE], gl.float32, o_layout)

    if mine <= 0:
        _pass_over(full, empty, 0, gl.where(tiles > 0, tiles + 1, 0), RING)
    else:
        if WARPS == 4:
            _pass_over(full, empty, 0, first, RING)
        own = (visibility, node, stop, context, count, capacity, words)
        slot = first % RING
        # loaded before the keys are waited for
        low = _word(visibility, node, stop - 1 - first, context, count, capacity, words, 0, KEYS)
        high = _word(visibility, node, stop - 1 - first, context, count, capacity, words, 1, KEYS)
        _wait(full, first, RING)
        k = keys.index(slot).reshape([KEYS, SIZE])
        s = gl.zeros([held, KEYS], gl.float32, s_layout)
        s = warpgroup_mma(q, k.permute((1, 0)), s, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=(s,))
        if WARPS == 4:
            mbarrier.arrive(empty.index(slot), count=1)
        if masked_mine > 0:
            s = _masked(s, low, high, KEYS, s_layout)
        weights, top, total, _ = _weights(s, top, total, scale)
        p = gl.convert_layout(weights.to(dtype), p_layout)
        _wait(full, first + 1, RING)
        if WARPS == 4 and stride > 1 and mine > 1:
            _pass_over(full, empty, first + 2, first + stride, RING)
            _wait(full, first + stride, RING)
        # one turn more than tiles are masked, so that the last masked tile's dead values are cleared
        masked_turns = gl.minimum(masked_mine + 1, mine)
        for i in range(1, mine):
            p, top, total, acc = _turn(
                q, keys, values, bars, own, first + i * stride, stride, i + 1 < mine, p, top, total, acc, scale,
                i < masked_turns, KEYS, SIZE, RING, WARPS, s_layout, p_layout,
            )  # fmt: skip
        last = first + (mine - 1) * stride
        slot = (last + 1) % RING
        v = values.index(slot).reshape([KEYS, SIZE])
        _clear_dead(v, stop - 1 - last, context, count, KEYS, SIZE, WARPS)
        acc = warpgroup_mma(p, v, acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        # 8 warps have no step left that the producer waits for
        if WARPS == 4:
            mbarrier.arrive(empty.index(slot), count=1)
            _pass_over(full, empty, last + 2, tiles + 1, RING)

    # as triton.py's _finish
    empty = total == 0.0
    whole = gl.where(empty, 1.0, total)
    live = node < count
    inside = node < nodes
    log = gl.where(empty | (node >= count), float("-inf"), top + gl.log2(whole))
    head = kv_head * GROUP + row % GROUP
    out_row = (n_long * nodes + node) * HEADS + head
    o_rows: gl.constexpr = gl.SliceLayout(1, o_layout)
    acc = acc * gl.convert_layout(1.0 / whole, o_rows)[:, None]
    column = gl.arange(0, SIZE, layout=gl.SliceLayout(0, o_layout))
    if DIRECT:
        acc = gl.where(gl.convert_layout(live, o_rows)[:, None], acc, 0.0)
        to = out + gl.convert_layout(out_row, o_rows)[:, None] * SIZE + column[None, :]
        gl.store(to, acc.to(dtype), mask=gl.convert_layout(inside, o_rows)[:, None])
        if WITH_LOG:
            gl.store(log_sum + out_row, log / LOG2_E, mask=inside)
    else:
        at_part = out_row * (splits * parts_of_last) + split * parts_of_last + first
        gl.store(part_log + at_part, log, mask=inside)
        worth = inside & (log > float("-inf"))
        to = part_out + gl.convert_layout(at_part, o_rows)[:, None] * SIZE + column[None, :]
        gl.store(to, acc.to(part_out.dtype.element_ty), mask=gl.convert_layout(worth, o_rows)[:, None])


@gluon.jit(do_not_specialize=["capacity", "nodes", "words", "splits", "blocks", "row_tiles"])
def split_kernel(
    key_map: tma.tensor_descriptor,
    value_map: tma.tensor_descriptor,
    query: gl.tensor,
    visibility: gl.tensor,
    context_lengths: gl.tensor,
    node_counts: gl.tensor,
    part_out: gl.tensor,
    part_log: gl.tensor,
    out: gl.tensor,
    log_sum: gl.tensor,
    stride_qn: gl.tensor,
    stride_qt: gl.tensor,
    stride_qh: gl.tensor,
    capacity: gl.tensor,
    scale: gl.tensor,
    nodes: gl.tensor,
    words: gl.tensor,
    splits: gl.tensor,
    blocks: gl.tensor,
    row_tiles: gl.tensor,
    HEADS: gl.constexpr,
    GROUP: gl.constexpr,
    SIZE: gl.constexpr,
    KEYS: gl.constexpr,
    RING: gl.constexpr,
    REGISTERS: gl.constexpr,
    COUNTED: gl.constexpr,
    DIRECT: gl.constexpr,
    WITH_LOG: gl.constexpr,
    PDL: gl.constexpr,
) -> None:
    """One (request, key head, block of rows, split): normalised output and log2-sum-exp2 over its share of the keys."""
    block = gl.program_id(0) % blocks
    rest = gl.program_id(0) // blocks
    kv_head = rest % (HEADS // GROUP)
    split = rest // (HEADS // GROUP)
    n = gl.program_id(1)
    if PDL:
        gdc_wait()  # this kernel may itself have been launched early
        gdc_launch_dependents()

    count = nodes
    if COUNTED:
        count = gl.minimum(gl.maximum(gl.load(node_counts + n).to(gl.int32), 0), nodes)
    context = gl.minimum(gl.maximum(gl.load(context_lengths + n).to(gl.int32), 0), capacity)
    context_tiles = gl.cdiv(context, KEYS)
    weight = context_tiles + gl.cdiv(count, KEYS) * TREE_WEIGHT
    start = _boundary(split * weight // splits, context_tiles)
    stop = _boundary((split + 1) * weight // splits, context_tiles)

    dtype: gl.constexpr = query.dtype.element_ty
    keys = gl.allocate_shared_memory(dtype, [RING, 1, KEYS, 1, SIZE], key_map.layout)
    values = gl.allocate_shared_memory(dtype, [RING, 1, KEYS, 1, SIZE], value_map.layout)
    q_pair_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([2 * ROWS, SIZE], dtype)
    q_pair = gl.allocate_shared_memory(dtype, [2 * ROWS, SIZE], q_pair_layout)
    q_third_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, SIZE], dtype)
    q_third = gl.allocate_shared_memory(dtype, [ROWS, SIZE], q_third_layout)
    full = gl.allocate_shared_memory(gl.int64, [RING, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [RING, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(RING):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=2)

    # two row tiles to each pair, the rest to the third warpgroups; those in excess share the last
    rest = gl.maximum(row_tiles - 2 * blocks, 0)
    parts_of_last = gl.where(rest > 0, blocks - rest + 1, 1)
    tiles = stop - start
    bars = (full, empty)
    where = (n, kv_head, context, count, stop, tiles)
    rows = (parts_of_last, split, splits)
    tensors = (query, visibility, part_out, part_log, out, log_sum)
    strides = (stride_qn, stride_qt, stride_qh)
    numbers = (scale, capacity, nodes, words)
    common = (keys, values, bars, where, rows, tensors, strides, numbers)
    # with nothing left over a third warpgroup gets rows beyond the last and no tile
    tile = 2 * blocks + gl.minimum(block, gl.maximum(rest - 1, 0))
    first = gl.where(rest > 0, 2 * blocks + block - tile, tiles)
    stride = gl.where(tile == row_tiles - 1, parts_of_last, 1)
    pair, third = (2 * block, 0, 1), (tile, first, stride)
    gl.warp_specialize(
        [
            (_attend, (common, q_pair, pair, 8, HEADS, GROUP, SIZE, KEYS, RING, DIRECT, WITH_LOG)),
            (_attend, (common, q_third, third, 4, HEADS, GROUP, SIZE, KEYS, RING, DIRECT, WITH_LOG)),
            (_fetch, (key_map, value_map, keys, values, bars, where, KEYS, RING)),
        ],
        [4, 1],
        [REGISTERS, 24],
    )
