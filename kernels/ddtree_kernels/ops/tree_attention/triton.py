"""Kernels of tree_attention: one split of the keys for one block of packed query rows, and the reduction over splits.

README.md beside this derives them. Row r of a packed block is node r // GROUP, query head r % GROUP of the key head.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

LOG2_E = tl.constexpr(1.4426950408889634)
TREE_WEIGHT = tl.constexpr(2)  # a tile of the tree, which needs masks, counts as this many tiles of context


@triton.jit
def _boundary(weight: tl.tensor, context_tiles: tl.tensor) -> tl.tensor:
    """The tile before which tiles of this weight lie in all."""
    tree = tl.maximum(weight - context_tiles, 0)
    return tl.minimum(weight, context_tiles) + (tree + TREE_WEIGHT - 1) // TREE_WEIGHT


@triton.jit
def _addresses(
    block_table: tl.tensor,
    at: tl.tensor,
    stride_page: tl.tensor,
    stride_row: tl.tensor,
    real: tl.tensor,
    PAGE: tl.constexpr,
) -> tl.tensor:
    """int64 element offsets of these rows of one request's cache."""
    if PAGE == 0:
        offset = at.to(tl.int64) * stride_row
    else:
        page = tl.load(block_table + at // PAGE, mask=real, other=0).to(tl.int64)
        offset = page * stride_page + (at % PAGE).to(tl.int64) * stride_row
    return offset


@triton.jit
def _step(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    seen: tl.tensor,
    top: tl.tensor,
    total: tl.tensor,
    acc: tl.tensor,
    scale: tl.tensor,
    soft_cap: tl.tensor,
    MASKED: tl.constexpr,
    CAPPED: tl.constexpr,
    EXACT: tl.constexpr,
) -> tl.tensor:
    """One tile of keys: running maximum (in units of log 2), sum and weighted sum of values.

    scale has log2(e) in it, so that exp2 gives the weights; with a soft cap it is scale / cap instead.
    """
    if EXACT:
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
    else:
        s = tl.dot(q, tl.trans(k))
    if CAPPED:
        # tanh x = 1 - 2 / (e^2x + 1), in which nothing overflows
        s = soft_cap * LOG2_E * (1.0 - 2.0 / (tl.exp2(s * (scale * 2.0 * LOG2_E)) + 1.0))
        scale = 1.0
    if MASKED:
        s = tl.where(seen, s, float("-inf"))
    new_top = tl.maximum(top, tl.max(s, axis=1) * scale)
    if MASKED:
        safe = tl.where(new_top == float("-inf"), 0.0, new_top)
    else:
        safe = new_top
    p = tl.exp2(s * scale - safe[:, None])
    fade = tl.exp2(top - safe)
    total = total * fade + tl.sum(p, axis=1)
    acc = acc * fade[:, None]
    if EXACT:
        acc = tl.dot(p, v, acc, input_precision="ieee")
    else:
        acc = tl.dot(p.to(v.dtype), v, acc)
    return new_top, total, acc


@triton.jit
def _seen(
    visibility: tl.tensor,
    depths: tl.tensor,
    node: tl.tensor,
    own: tl.tensor,
    position: tl.tensor,
    real: tl.tensor,
    lane: tl.tensor,
    base: tl.tensor,
    count: tl.tensor,
    shown: tl.tensor,
    words: tl.tensor,
    window: tl.tensor,
    BLOCK_N: tl.constexpr,
    WINDOWED: tl.constexpr,
) -> tl.tensor:
    """bool [rows, keys]: for keys of the tree (shown > 0) the rows' visibility bits, for the context all."""
    word_at = visibility + node * words + base // 64
    bits = tl.load(word_at, mask=node < shown, other=-1)
    shift = (base % 64 + lane) & 63
    if BLOCK_N > 64:
        more = tl.load(word_at + 1, mask=node < tl.where(base // 64 + 1 < words, shown, 0), other=-1)
        both = tl.where((lane < 64)[None, :], bits[:, None], more[:, None])
        seen = ((both >> shift[None, :].to(tl.int64)) & 1) != 0
    else:
        seen = ((bits[:, None] >> shift[None, :].to(tl.int64)) & 1) != 0
    seen = seen & real[None, :] & (node < count)[:, None]
    if WINDOWED:
        seen = seen & (own[:, None] - position[None, :] < window)
    return seen


@triton.jit
def _finish(
    top: tl.tensor,
    total: tl.tensor,
    acc: tl.tensor,
    row: tl.tensor,
    node: tl.tensor,
    head: tl.tensor,
    n: tl.tensor,
    nodes: tl.tensor,
    count: tl.tensor,
    splits: tl.tensor,
    split: tl.tensor,
    part_out: tl.tensor,
    part_log: tl.tensor,
    out: tl.tensor,
    log_sum: tl.tensor,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    DIRECT: tl.constexpr,
    WITH_LOG: tl.constexpr,
) -> None:
    """Writes one block's rows: the output itself, or this split's part of it."""
    column = tl.arange(0, SIZE)
    inside = node < nodes
    live = node < count
    empty = total == 0.0
    acc = acc / tl.where(empty, 1.0, total)[:, None]
    log = tl.where(empty | (live == 0), float("-inf"), top + tl.log2(tl.where(empty, 1.0, total)))
    acc = tl.where(live[:, None], acc, 0.0)
    out_row = (n * nodes + node) * HEADS + head
    if DIRECT:
        tl.store(out + out_row[:, None] * SIZE + column[None, :], acc.to(out.dtype.element_ty), mask=inside[:, None])
        if WITH_LOG:
            tl.store(log_sum + out_row, log / LOG2_E, mask=inside)
    else:
        at_part = out_row * splits + split
        tl.store(part_log + at_part, log, mask=inside)
        worth = inside & (log > float("-inf"))
        tl.store(part_out + at_part[:, None] * SIZE + column[None, :], acc, mask=worth[:, None])


@triton.jit(do_not_specialize=["capacity", "window", "nodes", "words", "splits", "blocks"])
def split_kernel(
    query: tl.tensor,
    key_cache: tl.tensor,
    value_cache: tl.tensor,
    visibility: tl.tensor,
    context_lengths: tl.tensor,
    node_counts: tl.tensor,
    block_table: tl.tensor,
    depths: tl.tensor,
    part_out: tl.tensor,
    part_log: tl.tensor,
    out: tl.tensor,
    log_sum: tl.tensor,
    stride_qn: tl.tensor,
    stride_qt: tl.tensor,
    stride_qh: tl.tensor,
    stride_page: tl.tensor,
    stride_row: tl.tensor,
    stride_head: tl.tensor,
    stride_table: tl.tensor,
    capacity: tl.tensor,
    scale: tl.tensor,
    soft_cap: tl.tensor,
    window: tl.tensor,
    nodes: tl.tensor,
    words: tl.tensor,
    splits: tl.tensor,
    blocks: tl.tensor,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    SIZE: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
    COUNTED: tl.constexpr,
    DIRECT: tl.constexpr,
    WITH_LOG: tl.constexpr,
    EXACT: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One (request, key head, block of rows, split): normalised output and log2-sum-exp2 over its share of the keys."""
    if PDL:
        gdc_wait()  # this kernel may itself have been launched early
        gdc_launch_dependents()
    n = tl.program_id(1).to(tl.int64)
    block = tl.program_id(0) % blocks
    rest = tl.program_id(0) // blocks
    kv_head = rest % (HEADS // GROUP)
    split = rest // (HEADS // GROUP)

    count = nodes
    if COUNTED:
        count = tl.minimum(tl.maximum(tl.load(node_counts + n).to(tl.int32), 0), nodes)
    context = tl.minimum(tl.maximum(tl.load(context_lengths + n).to(tl.int32), 0), capacity)
    column = tl.arange(0, SIZE)
    visibility += n * nodes * words
    depths += n * nodes
    query += n * stride_qn
    row = block * BLOCK_M + tl.arange(0, BLOCK_M)
    node = row // GROUP
    head = kv_head * GROUP + row % GROUP
    q_at = node.to(tl.int64) * stride_qt + head.to(tl.int64) * stride_qh
    q = tl.load(query + q_at[:, None] + column[None, :], mask=(node < count)[:, None], other=0.0)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, SIZE], tl.float32)
    own = node
    first = 0
    if WINDOWED:
        # the root looks back farthest
        first = tl.maximum(context - window + 1, 0) // BLOCK_N
        own = context + tl.load(depths + node, mask=node < count, other=0)
    whole = context // BLOCK_N
    context_tiles = tl.cdiv(context, BLOCK_N)
    weight = context_tiles - first + tl.cdiv(count, BLOCK_N) * TREE_WEIGHT
    start = first + _boundary(split * weight // splits, context_tiles - first)
    stop = first + _boundary((split + 1) * weight // splits, context_tiles - first)
    if WINDOWED:
        plain = start
    else:
        plain = tl.minimum(stop, whole)

    key_cache += kv_head.to(tl.int64) * stride_head
    value_cache += kv_head.to(tl.int64) * stride_head
    if PAGE == 0:
        key_cache += n * stride_page
        value_cache += n * stride_page
    else:
        block_table += n * stride_table
    lane = tl.arange(0, BLOCK_N)

    for tile in range(start, plain):
        # context that every node sees: no mask
        at = tile * BLOCK_N + lane
        offset = _addresses(block_table, at, stride_page, stride_row, at >= 0, PAGE)[:, None] + column[None, :]
        k = tl.load(key_cache + offset)
        v = tl.load(value_cache + offset)
        top, total, acc = _step(q, k, v, top, top, total, acc, scale, soft_cap, False, CAPPED, EXACT)

    for tile in range(tl.maximum(start, plain), stop):
        # the context's ragged end, a window's start, the tree
        of_tree = context_tiles <= tile
        shown = tl.where(of_tree, count, 0)  # nodes whose keys this tile holds, if any
        base = tl.where(of_tree, (tile - context_tiles) * BLOCK_N, tile * BLOCK_N)
        at = base + lane + tl.where(of_tree, context, 0)
        real = at < tl.minimum(tl.where(of_tree, context + count, context), capacity)
        offset = _addresses(block_table, at, stride_page, stride_row, real, PAGE)[:, None] + column[None, :]
        k = tl.load(key_cache + offset, mask=real[:, None], other=0.0)
        v = tl.load(value_cache + offset, mask=real[:, None], other=0.0)
        position = at
        if WINDOWED:
            depth = tl.load(depths + base + lane, mask=base + lane < shown, other=0)
            position = tl.where(of_tree, context + depth, at)
        seen = _seen(
            visibility, depths, node, own, position, real, lane, base, count, shown, words, window, BLOCK_N, WINDOWED
        )
        top, total, acc = _step(q, k, v, seen, top, total, acc, scale, soft_cap, True, CAPPED, EXACT)

    _finish(
        top, total, acc, row, node, head, n, nodes, count, splits, split, part_out, part_log, out, log_sum, HEADS, SIZE,
        DIRECT, WITH_LOG,
    )  # fmt: skip


@triton.jit(do_not_specialize=["parts", "nodes", "shared", "shared_from"])
def reduce_kernel(
    part_out: tl.tensor,
    part_log: tl.tensor,
    out: tl.tensor,
    log_sum: tl.tensor,
    parts: tl.tensor,
    nodes: tl.tensor,
    shared: tl.tensor,
    shared_from: tl.tensor,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    SIZE: tl.constexpr,
    PARTS_PAD: tl.constexpr,
    SHARED: tl.constexpr,
    WITH_LOG: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One (request, node, head): its parts' outputs, each weighted by its share of the sum of exponentials.

    With SHARED, packed rows before shared_from have only every `shared`-th part.
    """
    if PDL:
        gdc_wait()  # the parts' kernel has ended and its writes are seen
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS_PAD)
    column = tl.arange(0, SIZE)
    there = part < parts
    if SHARED:
        packed = (row // HEADS % nodes) * GROUP + row % HEADS % GROUP
        there = there & (part % tl.where(packed >= shared_from, 1, shared) == 0)
    # the outputs of empty parts were not written: they are read too, so that no load waits for the logs
    value = tl.load(part_out + (row * parts + part)[:, None] * SIZE + column[None, :], mask=there[:, None], other=0.0)
    log = tl.load(part_log + row * parts + part, mask=there, other=float("-inf"))
    top = tl.max(log, axis=0)
    safe = tl.where(top == float("-inf"), 0.0, top)
    weight = tl.exp2(log - safe)
    total = tl.sum(weight, axis=0)
    value = tl.where((weight > 0.0)[:, None], value.to(tl.float32), 0.0)
    mean = tl.sum(value * weight[:, None], axis=0) / tl.where(total == 0.0, 1.0, total)
    tl.store(out + row * SIZE + column, mean.to(out.dtype.element_ty))
    if WITH_LOG:
        tl.store(log_sum + row, tl.where(total == 0.0, float("-inf"), (top + tl.log2(total)) / LOG2_E))
