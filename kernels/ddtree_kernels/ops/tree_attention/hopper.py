"""The split kernel of tree_attention for Hopper, in Gluon: FlashAttention-3's order by hand (README.md beside this).

One program: a producer warp fetches tiles of keys and values by TMA into two rings; WARPGROUPS consumers hold 64 packed
rows each. Tiles run from the last (the tree, masked) to the first. README.md proves that the rings cannot deadlock.
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

LOG2_E = gl.constexpr(1.4426950408889634)
ROWS = gl.constexpr(64)  # of one consumer warpgroup
WARPGROUPS = gl.constexpr(3)  # consumers of one program
TREE_WEIGHT = gl.constexpr(3)  # a tile of the tree, which needs masks, counts as this many tiles of context


@gluon.jit
def _pass_over(
    full: gl.shared_memory_descriptor,
    empty: gl.shared_memory_descriptor,
    first: gl.tensor,
    stop: gl.tensor,
    RING: gl.constexpr,
) -> None:
    """Waits for tiles first..stop-1 of one ring, which another warpgroup uses, and gives them back."""
    for j in range(first, stop):
        mbarrier.wait(full.index(j % RING), (j // RING) & 1)
        mbarrier.arrive(empty.index(j % RING), count=1)


@gluon.jit
def _boundary(weight: gl.tensor, context_tiles: gl.tensor) -> gl.tensor:
    """The tile before which tiles of this weight lie in all."""
    tree = gl.maximum(weight - context_tiles, 0)
    return gl.minimum(weight, context_tiles) + (tree + TREE_WEIGHT - 1) // TREE_WEIGHT


@gluon.jit
def _row0(tile: gl.tensor, context: gl.tensor, context_tiles: gl.tensor, KEYS: gl.constexpr) -> gl.tensor:
    """First cache row of a tile: context tiles from row 0, tree tiles from the context's end."""
    row = tile * KEYS
    if tile >= context_tiles:
        row = context + (tile - context_tiles) * KEYS
    return row


@gluon.jit
def _fetch(
    key_map: tma.tensor_descriptor,
    value_map: tma.tensor_descriptor,
    keys: gl.shared_memory_descriptor,
    values: gl.shared_memory_descriptor,
    bars: gl.tuple,
    where: gl.tuple,
    KEYS: gl.constexpr,
    KEY_RING: gl.constexpr,
    VALUE_RING: gl.constexpr,
) -> None:
    """The producer: K0, K1, V0, K2, V1, ... of the split's tiles, from the last to the first."""
    key_full, key_empty, value_full, value_empty = bars
    n, kv_head, context, _, stop, tiles = where
    context_tiles = (context + KEYS - 1) // KEYS
    for step in range(tiles + 1):
        if step < tiles:
            slot = step % KEY_RING
            mbarrier.wait(key_empty.index(slot), ((step // KEY_RING) & 1) ^ 1)
            row = _row0(stop - 1 - step, context, context_tiles, KEYS)
            mbarrier.expect(key_full.index(slot), key_map.block_type.nbytes)
            tma.async_copy_global_to_shared(key_map, [n, row, kv_head, 0], key_full.index(slot), keys.index(slot))
        if step > 0:
            j = step - 1
            slot = j % VALUE_RING
            mbarrier.wait(value_empty.index(slot), ((j // VALUE_RING) & 1) ^ 1)
            row = _row0(stop - 1 - j, context, context_tiles, KEYS)
            mbarrier.expect(value_full.index(slot), value_map.block_type.nbytes)
            tma.async_copy_global_to_shared(value_map, [n, row, kv_head, 0], value_full.index(slot), values.index(slot))


@gluon.jit
def _weights(
    s: gl.tensor,
    top: gl.tensor,
    total: gl.tensor,
    scale: gl.tensor,
) -> gl.tuple:
    """Scores of one tile to weights: new running maximum (in units of log 2), sum, and the factor of what was.

    A maximum that was passed by less than a factor of 256 is kept, so that the factor is nearly always 1. A row that
    has seen no key yet has a maximum of minus infinity.
    """
    new = gl.maximum(top, gl.max(s, 1) * scale)
    new = gl.where(new > top + 8.0, new, top)
    safe = gl.where(new == float("-inf"), 0.0, new)
    p = gl.exp2(s * scale - safe[:, None])
    fade = gl.exp2(top - safe)
    return p, new, total * fade + gl.sum(p, 1), fade


@gluon.constexpr_function
def _fade_code(count: int) -> str:
    """PTX that multiplies `count` registers by as many factors unless these are 1 in the whole warp.

    A thread's factors alternate between its two rows by pairs, so the first and the third tell all.
    """
    factor = [f"${2 * count + i}" for i in range(count)]
    lines = [
        "{ .reg .pred some, any;",
        f"setp.neu.f32 some, {factor[0]}, 0f3F800000;",
        f"setp.neu.or.f32 some, {factor[2]}, 0f3F800000, some;",
        "vote.sync.any.pred any, some, 0xffffffff;",
        "@!any bra done;",
        *(f"mul.f32 ${i}, ${i}, {factor[i]};" for i in range(count)),
        "done: }",
    ]
    return "\n".join(lines)


@gluon.constexpr_function
def _fade_operands(count: int) -> str:
    """Constraints of _fade_code: results, the same registers as inputs, factors."""
    return ",".join(["=f"] * count + [str(i) for i in range(count)] + ["f"] * count)


@gluon.jit
def _faded(acc: gl.tensor, fade: gl.tensor, SIZE: gl.constexpr) -> gl.tensor:
    """acc times its rows' factors."""
    factor = gl.convert_layout(fade, gl.SliceLayout(1, acc.type.layout))[:, None]
    count: gl.constexpr = SIZE // 2
    return gl.inline_asm_elementwise(
        _fade_code(count), _fade_operands(count), [acc, factor], dtype=gl.float32, is_pure=True, pack=count
    )


@gluon.jit
def _word(
    visibility: gl.tensor,
    node: gl.tensor,
    tile: gl.tensor,
    context: gl.tensor,
    count: gl.tensor,
    capacity: gl.tensor,
    words: gl.tensor,
    PART: gl.constexpr,
    KEYS: gl.constexpr,
) -> gl.tensor:
    """int32 [64]: which of the tile's keys 32 PART .. 32 PART + 31 a row sees: its visibility bits in a tile of the
    tree, every real key in one of the context. 32 bits at a time: registers are scarce here.
    """
    context_tiles = (context + KEYS - 1) // KEYS
    of_tree = tile >= context_tiles
    base = gl.where(of_tree, (tile - context_tiles) * KEYS, tile * KEYS) + 32 * PART
    shown = gl.where(of_tree & (base < 64 * words), count, 0)
    end = gl.where(of_tree, gl.minimum(count, capacity - context), context)
    real = gl.minimum(gl.maximum(end - base, 0), 32)
    of_keys = gl.where(real == 32, -1, (1 << (real & 31)) - 1)
    halves = visibility.to(gl.pointer_type(gl.int32), bitcast=True)
    bits = gl.load(halves + node * (2 * words) + base // 32, mask=node < shown, other=-1)
    return gl.where(node < count, bits & of_keys, 0)


@gluon.jit
def _masked(s: gl.tensor, low: gl.tensor, high: gl.tensor, KEYS: gl.constexpr, s_layout: gl.constexpr) -> gl.tensor:
    """Scores of one tile, minus infinity where its two words have no bit."""
    lane = gl.arange(0, KEYS, layout=gl.SliceLayout(0, s_layout))
    word = gl.where((lane < 32)[None, :], low[:, None], high[:, None])
    return gl.where(((word >> (lane % 32)[None, :]) & 1) != 0, s, float("-inf"))


@gluon.jit
def _clear_dead(
    slot: gl.shared_memory_descriptor,
    tile: gl.tensor,
    context: gl.tensor,
    count: gl.tensor,
    KEYS: gl.constexpr,
    SIZE: gl.constexpr,
) -> None:
    """Zeroes rows of a value tile beyond the last live one: weight 0 times NaN would be NaN."""
    context_tiles = (context + KEYS - 1) // KEYS
    live = context + count - _row0(tile, context, context_tiles, KEYS)
    if live < KEYS:
        layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // SIZE, SIZE // 8], [4, 1], [1, 0])
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
    KEY_RING: gl.constexpr,
    VALUE_RING: gl.constexpr,
    s_layout: gl.constexpr,
    p_layout: gl.constexpr,
) -> gl.tuple:
    """Own tile j, whose keys are there: its scores are issued, then the values of the own tile before are added.

    masked: tile j needs a mask or the tile before may hold dead values; a branch in one loop, since code that a program
    meets for the first time has to be fetched. The softmax of j runs while that product does. The wait for the next own
    tile's keys stands between the softmax and the product's end: a loop is what ptxas does not move the softmax across.
    """
    key_full, key_empty, value_full, value_empty = bars
    visibility, node, stop, context, count, capacity, words = own
    before = j - stride
    slot = j % KEY_RING
    k = keys.index(slot).reshape([KEYS, SIZE])
    s = gl.zeros([ROWS, KEYS], gl.float32, s_layout)
    value_slot = before % VALUE_RING
    v = values.index(value_slot).reshape([KEYS, SIZE])
    s = warpgroup_mma(q, k.permute((1, 0)), s, use_acc=False, is_async=True)
    mbarrier.wait(value_full.index(value_slot), (before // VALUE_RING) & 1)
    if masked:
        _clear_dead(v, stop - 1 - before, context, count, KEYS, SIZE)
    acc = warpgroup_mma(p, v, acc, is_async=True)
    s = warpgroup_mma_wait(1, deps=(s,))
    mbarrier.arrive(key_empty.index(slot), count=1)
    if masked:
        low = _word(visibility, node, stop - 1 - j, context, count, capacity, words, 0, KEYS)
        high = _word(visibility, node, stop - 1 - j, context, count, capacity, words, 1, KEYS)
        s = _masked(s, low, high, KEYS, s_layout)
    weights, top, total, fade = _weights(s, top, total, scale)
    following = j + stride
    if more:
        _pass_over(key_full, key_empty, j + 1, following, KEY_RING)
    mbarrier.wait(key_full.index(following % KEY_RING), (following // KEY_RING) & 1, pred=more)
    # the old weights' registers are free only now
    acc, weights = warpgroup_mma_wait(0, deps=(acc, weights))
    mbarrier.arrive(value_empty.index(value_slot), count=1)
    _pass_over(value_full, value_empty, before + 1, j, VALUE_RING)
    acc = _faded(acc, fade, SIZE)
    p = gl.convert_layout(weights.to(v.dtype), p_layout)
    return p, top, total, acc


@gluon.jit
def _attend(
    common: gl.tuple,
    WARPGROUP: gl.constexpr,
    HEADS: gl.constexpr,
    GROUP: gl.constexpr,
    SIZE: gl.constexpr,
    KEYS: gl.constexpr,
    KEY_RING: gl.constexpr,
    VALUE_RING: gl.constexpr,
    DIRECT: gl.constexpr,
    WITH_LOG: gl.constexpr,
) -> None:
    """A consumer: 64 packed rows over its tiles of the split (all, or every SHARED-th of the last block of rows)."""
    q_all, keys, values, bars, where, rows, tensors, strides, numbers = common
    key_full, key_empty, value_full, value_empty = bars
    n, kv_head, context, count, stop, tiles = where
    block, blocks, row_tiles, split, splits = rows
    query, visibility, part_out, part_log, out, log_sum = tensors
    stride_qn, stride_qt, stride_qh = strides
    scale, capacity, nodes, words = numbers
    dtype: gl.constexpr = keys.dtype

    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, SIZE, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    q_layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // SIZE, SIZE // 8], [4, 1], [1, 0])

    # warpgroups in excess of the blocks of rows share the last block's tiles
    place = WARPGROUP * blocks + block
    row_tile = gl.minimum(place, row_tiles - 1)
    first = place - row_tile
    parts_of_last = WARPGROUPS * blocks - row_tiles + 1
    stride = gl.where(row_tile == row_tiles - 1, parts_of_last, 1)
    mine = (tiles - first + stride - 1) // stride  # own tiles: first, first + stride, ...
    masked = gl.minimum(gl.maximum(stop - context // KEYS, 0), tiles)  # tiles that need a mask come first
    masked_mine = (masked - first + stride - 1) // stride

    q_row = row_tile * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, q_layout))
    q_node = q_row // GROUP
    q_head = kv_head * GROUP + q_row % GROUP
    q_at = q_node.to(gl.int64) * stride_qt + q_head.to(gl.int64) * stride_qh
    q_column = gl.arange(0, SIZE, layout=gl.SliceLayout(0, q_layout))
    q = q_all.index(WARPGROUP)
    n_long = n.to(gl.int64)
    q.store(
        gl.load(
            query + n_long * stride_qn + q_at[:, None] + q_column[None, :], mask=(q_node < count)[:, None], other=0.0
        )
    )
    fence_async_shared()
    gl.thread_barrier()

    row = row_tile * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, s_layout))
    node = row // GROUP
    visibility += n_long * nodes * words
    top = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, s_layout))
    total = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, s_layout))
    acc = gl.zeros([ROWS, SIZE], gl.float32, o_layout)

    if mine <= 0:
        for j in range(tiles):
            _pass_over(key_full, key_empty, j, j + 1, KEY_RING)
            _pass_over(value_full, value_empty, j, j + 1, VALUE_RING)
    else:
        for j in range(first):
            _pass_over(key_full, key_empty, j, j + 1, KEY_RING)
            _pass_over(value_full, value_empty, j, j + 1, VALUE_RING)
        own = (visibility, node, stop, context, count, capacity, words)
        slot = first % KEY_RING
        # loaded before the keys are waited for
        low = _word(visibility, node, stop - 1 - first, context, count, capacity, words, 0, KEYS)
        high = _word(visibility, node, stop - 1 - first, context, count, capacity, words, 1, KEYS)
        mbarrier.wait(key_full.index(slot), (first // KEY_RING) & 1)
        k = keys.index(slot).reshape([KEYS, SIZE])
        s = gl.zeros([ROWS, KEYS], gl.float32, s_layout)
        s = warpgroup_mma(q, k.permute((1, 0)), s, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=(s,))
        mbarrier.arrive(key_empty.index(slot), count=1)
        if masked_mine > 0:
            s = _masked(s, low, high, KEYS, s_layout)
        weights, top, total, _ = _weights(s, top, total, scale)
        p = gl.convert_layout(weights.to(dtype), p_layout)
        second = first + stride
        if mine > 1:
            _pass_over(key_full, key_empty, first + 1, second, KEY_RING)
        mbarrier.wait(key_full.index(second % KEY_RING), (second // KEY_RING) & 1, pred=mine > 1)
        # one turn more than tiles are masked, so that the last masked tile's dead values are cleared
        masked_turns = gl.minimum(masked_mine + 1, mine)
        for i in range(1, mine):
            p, top, total, acc = _turn(
                q, keys, values, bars, own, first + i * stride, stride, i + 1 < mine, p, top, total, acc, scale,
                i < masked_turns, KEYS, SIZE, KEY_RING, VALUE_RING, s_layout, p_layout,
            )  # fmt: skip
        last = first + (mine - 1) * stride
        slot = last % VALUE_RING
        mbarrier.wait(value_full.index(slot), (last // VALUE_RING) & 1)
        v = values.index(slot).reshape([KEYS, SIZE])
        _clear_dead(v, stop - 1 - last, context, count, KEYS, SIZE)
        acc = warpgroup_mma(p, v, acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(value_empty.index(slot), count=1)
        for j in range(last + 1, tiles):
            _pass_over(key_full, key_empty, j, j + 1, KEY_RING)
            _pass_over(value_full, value_empty, j, j + 1, VALUE_RING)

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
    KEY_RING: gl.constexpr,
    VALUE_RING: gl.constexpr,
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
    q_shared: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, SIZE], dtype)
    q_all = gl.allocate_shared_memory(dtype, [WARPGROUPS, ROWS, SIZE], q_shared)
    keys = gl.allocate_shared_memory(dtype, [KEY_RING, 1, KEYS, 1, SIZE], key_map.layout)
    values = gl.allocate_shared_memory(dtype, [VALUE_RING, 1, KEYS, 1, SIZE], value_map.layout)
    key_full = gl.allocate_shared_memory(gl.int64, [KEY_RING, 1], mbarrier.MBarrierLayout())
    key_empty = gl.allocate_shared_memory(gl.int64, [KEY_RING, 1], mbarrier.MBarrierLayout())
    value_full = gl.allocate_shared_memory(gl.int64, [VALUE_RING, 1], mbarrier.MBarrierLayout())
    value_empty = gl.allocate_shared_memory(gl.int64, [VALUE_RING, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(KEY_RING):
        mbarrier.init(key_full.index(slot), count=1)
        mbarrier.init(key_empty.index(slot), count=WARPGROUPS)
    for slot in gl.static_range(VALUE_RING):
        mbarrier.init(value_full.index(slot), count=1)
        mbarrier.init(value_empty.index(slot), count=WARPGROUPS)

    bars = (key_full, key_empty, value_full, value_empty)
    where = (n, kv_head, context, count, stop, stop - start)
    rows = (block, blocks, row_tiles, split, splits)
    tensors = (query, visibility, part_out, part_log, out, log_sum)
    strides = (stride_qn, stride_qt, stride_qh)
    numbers = (scale, capacity, nodes, words)
    common = (q_all, keys, values, bars, where, rows, tensors, strides, numbers)
    gl.warp_specialize(
        [
            (_attend, (common, 0, HEADS, GROUP, SIZE, KEYS, KEY_RING, VALUE_RING, DIRECT, WITH_LOG)),
            (_attend, (common, 1, HEADS, GROUP, SIZE, KEYS, KEY_RING, VALUE_RING, DIRECT, WITH_LOG)),
            (_attend, (common, 2, HEADS, GROUP, SIZE, KEYS, KEY_RING, VALUE_RING, DIRECT, WITH_LOG)),
            (_fetch, (key_map, value_map, keys, values, bars, where, KEYS, KEY_RING, VALUE_RING)),
        ],
        [4, 4, 1],
        [REGISTERS, REGISTERS, 24],
    )
