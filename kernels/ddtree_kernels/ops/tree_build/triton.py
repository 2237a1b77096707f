"""Kernels of tree_build: ranked tokens of each row, a floor, the entries of the tree, their places and links.

README.md beside this derives them. Every kernel is one launch without host synchronisation; scratch needs no clearing,
because only written entries are read. Shapes are static, counts are read on the device.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ddtree_kernels.ops.pdl import follow, lead

FLOAT32_MAX = tl.constexpr(3.4028234663852886e38)
LOG2_E = tl.constexpr(1.4426950408889634)
HIGHEST64 = tl.constexpr(9223372036854775807)


@triton.jit
def _clean(raw: tl.tensor) -> tl.tensor:
    """float32; NaN is -inf, +inf the largest float32, -0 is +0."""
    x = raw.to(tl.float32)
    x = tl.where(x != x, float("-inf"), x)
    return tl.minimum(x, FLOAT32_MAX) + 0.0


@triton.jit
def group_max_kernel(
    logits: tl.tensor,
    group_best: tl.tensor,
    part_best: tl.tensor,
    part_sum: tl.tensor,
    stride_n: tl.tensor,
    stride_l: tl.tensor,
    depth: tl.tensor,
    vocab: tl.tensor,
    groups: tl.tensor,
    inverse_temperature: tl.tensor,
    GROUP: tl.constexpr,
    GROUPS_EACH: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One pass over the logits: the maximum of every group of GROUP tokens, each split's maximum and sum of exp.

    As few instructions a token as can be, since at large batches these and not the bytes are the limit. A maximum drops
    NaN by itself; in the sum NaN and overflow show, and only then it is taken again with care, from memory,
    so that the tokens need not be kept.
    """
    lead(PDL)
    row = tl.program_id(1).to(tl.int64)
    split = tl.program_id(0)
    base = logits + (row // depth) * stride_n + (row % depth) * stride_l
    group = split * GROUPS_EACH + tl.arange(0, GROUPS_EACH)
    token = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(base + token, mask=token < vocab, other=float("-inf")).to(tl.float32)
    best = _clean(tl.max(x, axis=1))
    top = tl.max(best, axis=0)
    at = row * tl.num_programs(0) + split
    scale = inverse_temperature * LOG2_E
    shift = tl.where(top == float("-inf"), 0.0, tl.maximum(top * scale, -FLOAT32_MAX))
    total = tl.sum(tl.exp2(x * scale - shift))
    if (total < 1e30) == 0:
        again = _clean(tl.load(base + token, mask=token < vocab, other=float("-inf")))
        z = tl.minimum(again * inverse_temperature, FLOAT32_MAX)
        highest = tl.where(top == float("-inf"), 0.0, tl.minimum(top * inverse_temperature, FLOAT32_MAX))
        total = tl.sum(tl.exp(z - highest))
    tl.store(part_sum + at, total)
    tl.store(part_best + at, top)
    tl.store(group_best + row * groups + group, best, mask=group < groups)


@triton.jit
def _key(x: tl.tensor, SHIFT: tl.constexpr) -> tl.tensor:
    """int32 that orders like the cleaned float; SHIFT low bits, which the logits' type never sets, are dropped."""
    if SHIFT > 0:  # of the largest float32 too much would be dropped: it stands for +inf, which has no low bits
        x = tl.where(x == FLOAT32_MAX, float("inf"), x)
    bits = x.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)) >> SHIFT


@triton.jit
def _value(key: tl.tensor, SHIFT: tl.constexpr) -> tl.tensor:
    """The float of a key."""
    wide = key << SHIFT
    wide = tl.where(key < 0, wide | ((1 << SHIFT) - 1), wide)
    return tl.minimum((wide ^ ((wide >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True), FLOAT32_MAX)


@triton.jit
def _log_prob(x: tl.tensor, inverse_temperature: tl.tensor, shift: tl.tensor, log_total: tl.tensor) -> tl.tensor:
    """log p of cleaned logits."""
    z = tl.minimum(x * inverse_temperature, FLOAT32_MAX)
    return tl.minimum((z - shift) - log_total, 0.0)


@triton.jit
def row_stats_kernel(
    group_best: tl.tensor,
    part_best: tl.tensor,
    part_sum: tl.tensor,
    row_top: tl.tensor,
    row_shift: tl.tensor,
    row_log_total: tl.tensor,
    row_step: tl.tensor,
    row_edge: tl.tensor,
    found: tl.tensor,
    step_counts: tl.tensor,
    splits: tl.tensor,
    groups: tl.tensor,
    inverse_temperature: tl.tensor,
    K: tl.constexpr,
    GROUPS_PAD: tl.constexpr,
    SPLITS_PAD: tl.constexpr,
    BINS: tl.constexpr,
    PER_NAT: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One row: log-sum-exp, its best log-probability, and how many group maxima lose how much against the best.

    Losses are counted in bins of 1 / PER_NAT nats, rounded up. K group maxima within a bin's loss are K tokens within
    it, so what loses more (`row_edge`, in bins; inf = no bound) is not among the row's K best.
    """
    follow(PDL)
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, SPLITS_PAD)
    x = tl.load(part_best + row * splits + part, mask=part < splits, other=float("-inf"))
    sums = tl.load(part_sum + row * splits + part, mask=part < splits, other=0.0)
    group = tl.arange(0, GROUPS_PAD)
    best = tl.load(group_best + row * groups + group, mask=group < groups, other=float("-inf"))
    z = tl.minimum(x * inverse_temperature, FLOAT32_MAX)
    top = tl.max(z, axis=0)
    shift = tl.where(top == float("-inf"), 0.0, top)
    log_total = tl.log(tl.maximum(tl.sum(sums * tl.exp(z - shift), axis=0), 1.0))
    tl.store(row_top + row, top)
    tl.store(row_shift + row, shift)
    tl.store(row_log_total + row, log_total)
    tl.store(row_step + row, tl.minimum((top - shift) - log_total, 0.0))
    tl.store(found + row, 0)

    loss = (top - tl.minimum(best * inverse_temperature, FLOAT32_MAX)) * PER_NAT
    upto = _count_losses(loss, group < groups, step_counts + row * BINS, K, BINS)
    bins = tl.arange(0, BINS)
    edge = tl.min(tl.where((upto >= K) & (bins < BINS - 1), bins, BINS), axis=0)
    tl.store(row_edge + row, tl.where(edge < BINS, edge.to(tl.float32), float("inf")))


@triton.jit
def _count_losses(
    loss: tl.tensor, real: tl.tensor, step_counts: tl.tensor, K: tl.constexpr, BINS: tl.constexpr
) -> tl.tensor:
    """Stores how many of the real losses fall into each bin, K in all at most; returns the running count without it."""
    bin_of = tl.where(real & (loss <= BINS - 2), tl.ceil(loss), BINS - 1).to(tl.int32)
    bins = tl.arange(0, BINS)
    counts = tl.where(bins < BINS - 1, tl.histogram(bin_of, BINS), 0)  # the last bin is for what is not counted
    upto = tl.cumsum(counts, axis=0)
    counts = tl.minimum(upto, K) - tl.minimum(upto - counts, K)  # no more than K tokens of a level are ever used
    tl.store(step_counts + bins, counts.to(tl.float32))
    return upto


@triton.jit
def order_kernel(
    logits: tl.tensor,
    top_log_prob: tl.tensor,
    top_token: tl.tensor,
    lengths: tl.tensor,
    row_step: tl.tensor,
    step_counts: tl.tensor,
    stride_n: tl.tensor,
    stride_l: tl.tensor,
    depth: tl.tensor,
    vocab: tl.tensor,
    inverse_temperature: tl.tensor,
    K: tl.constexpr,
    VOCAB_PAD: tl.constexpr,
    EACH: tl.constexpr,
    COUNTED: tl.constexpr,
    BINS: tl.constexpr,
    PER_NAT: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """EACH tokens of one row of a small vocabulary: a token's rank is the number of tokens before it, K are kept.

    Every program reads the whole row and takes its log-sum-exp; the first also counts losses as row_stats does, where
    COUNTED. All K places of a row are written, with -inf beyond its real tokens.
    """
    lead(PDL)
    row = tl.program_id(1).to(tl.int64)
    base = logits + (row // depth) * stride_n + (row % depth) * stride_l
    token = tl.arange(0, VOCAB_PAD)
    own_token = tl.program_id(0) * EACH + tl.arange(0, EACH)
    x = _clean(tl.load(base + token, mask=token < vocab, other=float("-inf")))
    own = _clean(tl.load(base + own_token, mask=own_token < vocab, other=float("-inf")))
    z = tl.minimum(x * inverse_temperature, FLOAT32_MAX)
    top = tl.max(z, axis=0)
    shift = tl.where(top == float("-inf"), 0.0, top)
    log_total = tl.log(tl.maximum(tl.sum(tl.exp(z - shift), axis=0), 1.0))
    ahead = (x[None, :] > own[:, None]) | ((x[None, :] == own[:, None]) & (token[None, :] < own_token[:, None]))
    rank = tl.sum(ahead.to(tl.int32), axis=1)
    chosen = (own_token < vocab) & (rank < K)
    out = row * K + rank
    tl.store(top_log_prob + out, _log_prob(own, inverse_temperature, shift, log_total), mask=chosen)
    tl.store(top_token + out, own_token, mask=chosen)
    if COUNTED:
        some = tl.sum((x > float("-inf")).to(tl.int32), axis=0)
        if tl.program_id(0) == 0:
            tl.store(lengths + row, tl.minimum(some, K))
            tl.store(row_step + row, tl.minimum((top - shift) - log_total, 0.0))
            _count_losses((top - z) * PER_NAT, token < vocab, step_counts + row * BINS, K, BINS)


@triton.jit
def floor_of_counts_kernel(
    row_step: tl.tensor,
    row_chain: tl.tensor,
    step_counts: tl.tensor,
    path_counts: tl.tensor,
    floors: tl.tensor,
    depth: tl.tensor,
    BUDGET: tl.constexpr,
    DEPTH_PAD: tl.constexpr,
    BINS: tl.constexpr,
    PER_NAT: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One request: the argmax chain's scores before each level, and the floor."""
    follow(PDL)
    n = tl.program_id(0).to(tl.int64)
    level = tl.arange(0, DEPTH_PAD)
    chain_step = tl.load(row_step + n * depth + level, mask=level < depth, other=0.0)
    chain = tl.cumsum(chain_step, axis=0)
    before = tl.where(level == 0, 0.0, chain - chain_step)
    before = tl.where(before == before, before, float("-inf"))
    tl.store(row_chain + n * depth + level, before, mask=level < depth)
    at = n * depth * BINS
    floor = _floor(chain, step_counts + at, path_counts + at, depth, BUDGET, DEPTH_PAD, BINS, PER_NAT)
    tl.store(floors + n, floor)


@triton.jit
def _floor(
    chain: tl.tensor,
    step_counts: tl.tensor,
    path_counts: tl.tensor,
    depth: tl.tensor,
    BUDGET: tl.constexpr,
    DEPTH_PAD: tl.constexpr,
    BINS: tl.constexpr,
    PER_NAT: tl.constexpr,
) -> tl.tensor:
    """A score that the BUDGET best prefixes of one request surely exceed; -inf where none was found.

    Counts prefixes by what they lose against the argmax chain: those of one level more are the convolution of the
    counts so far with those of its tokens. All counted are real prefixes, none worse than its bin says, so BUDGET of
    them bound the floor. The counts so far stay in registers, in turn reversed and not: so every level's matrix is
    symmetric, one level's sums run down it and the next one's across, and nothing has to change its place.
    """
    bins = tl.arange(0, BINS)
    both = bins[:, None] + bins[None, :] - (BINS - 1)
    last = depth - 1
    down = tl.load(step_counts + both, mask=both >= 0, other=0.0)
    across = tl.load(step_counts + tl.minimum(1, last) * BINS - both, mask=both <= 0, other=0.0)
    backward = tl.where(bins == BINS - 1, 1.0, 0.0)  # backward[b]: paths that lose BINS - 1 - b
    for d in range(0, depth, 2):
        down_after = tl.load(step_counts + tl.minimum(d + 2, last) * BINS + both, mask=both >= 0, other=0.0)
        across_after = tl.load(step_counts + tl.minimum(d + 3, last) * BINS - both, mask=both <= 0, other=0.0)
        forward = tl.minimum(tl.sum(down * backward[:, None], axis=0), 1e5)
        tl.store(path_counts + d * BINS + bins, forward)
        backward = tl.minimum(tl.sum(across * forward[None, :], axis=1), 1e5)
        tl.store(path_counts + (d + 1) * BINS + (BINS - 1) - bins, backward, mask=bins < (last - d) * BINS)
        down = down_after
        across = across_after
    tl.debug_barrier()
    level = tl.arange(0, DEPTH_PAD)
    lane_at = level[:, None] * BINS + bins[None, :]
    many = tl.load(path_counts + lane_at, mask=(level < depth)[:, None], other=0.0)
    score = chain[:, None] - bins[None, :].to(tl.float32) / PER_NAT
    many = tl.reshape(many, [1, DEPTH_PAD * BINS])
    score = tl.reshape(score, [1, DEPTH_PAD * BINS])
    part = tl.arange(0, 8)
    low = tl.full([], -64.0, tl.float32)
    width = tl.full([], 8.0, tl.float32)
    for _ in range(4):
        tried = low + width * part.to(tl.float32)
        reached = tl.sum(tl.where(score >= tried[:, None], many, 0.0), axis=1)
        low = tl.max(tl.where((reached >= BUDGET) | (part == 0), tried, -64.0), axis=0)
        width = width * 0.125
    # sums were taken in another order than the tree's
    floor = low - 1e-3 - 1e-5 * tl.abs(low)
    return tl.where(low > -64.0, floor, float("-inf"))


@triton.jit
def gather_kernel(
    logits: tl.tensor,
    group_best: tl.tensor,
    row_top: tl.tensor,
    row_shift: tl.tensor,
    row_log_total: tl.tensor,
    row_edge: tl.tensor,
    row_chain: tl.tensor,
    floors: tl.tensor,
    found: tl.tensor,
    listed: tl.tensor,
    group_list: tl.tensor,
    stride_n: tl.tensor,
    stride_l: tl.tensor,
    depth: tl.tensor,
    vocab: tl.tensor,
    groups: tl.tensor,
    inverse_temperature: tl.tensor,
    GROUP: tl.constexpr,
    GROUPS_EACH: tl.constexpr,
    EACH: tl.constexpr,
    ROOM: tl.constexpr,
    SHIFT: tl.constexpr,
    PER_NAT: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """GROUPS_EACH groups of one row: lists the tokens that may be of use, unordered, as (order of the logit, token).

    Of use are those that the floor leaves a chance and that may be among the row's K best. `found` counts all of them;
    where they are more than ROOM the list is not complete.
    """
    follow(PDL)
    row = tl.program_id(1).to(tl.int64)
    base = logits + (row // depth) * stride_n + (row % depth) * stride_l
    first = tl.program_id(0) * GROUPS_EACH
    group = first + tl.arange(0, GROUPS_EACH)
    best = tl.load(group_best + row * groups + group, mask=group < groups, other=float("-inf"))
    top = tl.load(row_top + row)
    shift = tl.load(row_shift + row)
    log_total = tl.load(row_log_total + row)
    edge = tl.load(row_edge + row)
    least = _least(tl.load(floors + row // depth), tl.load(row_chain + row))
    chance = _useful(best, top, shift, log_total, edge, least, inverse_temperature, PER_NAT).to(tl.int32)
    grouped = tl.sum(chance, axis=0)
    if grouped > 0:
        group_list += row * groups + first
        tl.store(group_list + tl.cumsum(chance, axis=0) - 1, group, mask=chance > 0)
        tl.debug_barrier()
        for start in range(0, grouped, EACH):
            slot = start + tl.arange(0, EACH)
            member = tl.load(group_list + slot, mask=slot < grouped, other=0)
            token = member[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
            real = (slot < grouped)[:, None] & (token < vocab)
            x = _clean(tl.load(base + token, mask=real, other=float("-inf")))
            good = _useful(x, top, shift, log_total, edge, least, inverse_temperature, PER_NAT)
            good = tl.reshape(good, [EACH * GROUP])
            place = tl.cumsum(good.to(tl.int32), axis=0) - 1
            many = tl.sum(good.to(tl.int32), axis=0)
            place += tl.atomic_add(found + row, many, sem="relaxed")
            both = ((~_key(x, SHIFT)).to(tl.int64) << 32) | token.to(tl.int64)
            tl.store(listed + row * ROOM + place, tl.reshape(both, [EACH * GROUP]), mask=good & (place < ROOM))


@triton.jit
def _least(floor: tl.tensor, chain: tl.tensor) -> tl.tensor:
    """What a token's log-probability must exceed after a chain of this score; slack for sums in another order."""
    least = floor - chain - 1e-3 - 1e-5 * tl.abs(floor)
    return tl.where((least == least) & (floor > float("-inf")), least, float("-inf"))


@triton.jit
def _useful(
    x: tl.tensor,
    top: tl.tensor,
    shift: tl.tensor,
    log_total: tl.tensor,
    edge: tl.tensor,
    least: tl.tensor,
    inverse_temperature: tl.tensor,
    PER_NAT: tl.constexpr,
) -> tl.tensor:
    """Whether cleaned logits are above the floor or the row's best, and within the edge of its K best."""
    z = tl.minimum(x * inverse_temperature, FLOAT32_MAX)
    lp = tl.minimum((z - shift) - log_total, 0.0)
    return (x > float("-inf")) & ((lp > least) | (z >= top)) & ((top - z) * PER_NAT <= edge)


@triton.jit
def place_kernel(
    logits: tl.tensor,
    group_best: tl.tensor,
    row_shift: tl.tensor,
    row_log_total: tl.tensor,
    found: tl.tensor,
    listed: tl.tensor,
    chosen_groups: tl.tensor,
    top_log_prob: tl.tensor,
    top_token: tl.tensor,
    lengths: tl.tensor,
    stride_n: tl.tensor,
    stride_l: tl.tensor,
    depth: tl.tensor,
    vocab: tl.tensor,
    groups: tl.tensor,
    inverse_temperature: tl.tensor,
    K: tl.constexpr,
    K_GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    EACH: tl.constexpr,
    CHUNK: tl.constexpr,
    ROOM: tl.constexpr,
    SHIFT: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """A row's listed tokens in rank order, K at most: each one's rank is the number of those before it.

    A row whose list is not complete (mass ties, mostly) is done by its first program alone, after exact selection.
    """
    follow(PDL)
    row = tl.program_id(1).to(tl.int64)
    begin = tl.program_id(0)
    stride = tl.num_programs(0)
    many = tl.load(found + row)
    shift = tl.load(row_shift + row)
    log_total = tl.load(row_log_total + row)
    listed += row * ROOM
    if begin == 0:
        tl.store(lengths + row, tl.minimum(many, K))
    if many > ROOM:
        if begin == 0:
            base = logits + (row // depth) * stride_n + (row % depth) * stride_l
            _select_exactly(
                base,
                group_best + row * groups,
                chosen_groups + row * K,
                listed,
                vocab,
                groups,
                K,
                K_GROUPS,
                GROUP,
                SHIFT,
            )
            many = tl.full([], K, tl.int32)
            stride = tl.full([], 1, tl.int32)
        else:
            many = tl.full([], 0, tl.int32)
    for first in range(begin * EACH, many, stride * EACH):
        slot = first + tl.arange(0, EACH)
        own = tl.load(listed + slot, mask=slot < many, other=HIGHEST64)
        rank = tl.zeros([EACH], tl.int32)
        for other in range(0, many, CHUNK):
            them = other + tl.arange(0, CHUNK)
            theirs = tl.load(listed + them, mask=them < many, other=HIGHEST64)
            rank += tl.sum((theirs[None, :] < own[:, None]).to(tl.int32), axis=1)
        chosen = (slot < many) & (rank < K)
        x = _value(~((own >> 32).to(tl.int32)), SHIFT)
        out = row * K + rank
        tl.store(top_log_prob + out, _log_prob(x, inverse_temperature, shift, log_total), mask=chosen)
        tl.store(top_token + out, (own & 0xFFFFFFFF).to(tl.int32), mask=chosen)


@triton.jit
def _select_exactly(
    base: tl.tensor,
    group_best: tl.tensor,
    chosen: tl.tensor,
    listed: tl.tensor,
    vocab: tl.tensor,
    groups: tl.tensor,
    K: tl.constexpr,
    K_GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    SHIFT: tl.constexpr,
) -> None:
    """The row's K best tokens into the list: the K best groups by a search over the bits of their maxima, then tokens.

    The K best tokens lie in the K best groups, since otherwise K groups would each hold a better one; ties go to the
    lower index. For few registers all is read again in pieces for each bit.
    """
    BITS: tl.constexpr = 32 - SHIFT
    WIDTH: tl.constexpr = 1024
    FEW: tl.constexpr = WIDTH // GROUP
    lowest: tl.constexpr = -(1 << (BITS - 1))
    kth = tl.full([], lowest, tl.int32)
    step = tl.full([], 1 << (BITS - 2), tl.int32)
    for bit in range(BITS):
        higher = tl.where(bit == 0, 0, kth + step)
        count = tl.full([], 0, tl.int32)
        for first in range(0, groups, WIDTH):
            at = first + tl.arange(0, WIDTH)
            best = tl.load(group_best + at, mask=at < groups, other=float("-inf"))
            count += tl.sum(((_key(best, SHIFT) >= higher) & (at < groups)).to(tl.int32), axis=0)
        kth = tl.where(count >= K_GROUPS, higher, kth)
        step = tl.where(bit == 0, step, step >> 1)
    above = tl.full([], 0, tl.int32)
    for first in range(0, groups, WIDTH):
        at = first + tl.arange(0, WIDTH)
        best = tl.load(group_best + at, mask=at < groups, other=float("-inf"))
        above += tl.sum(((_key(best, SHIFT) > kth) & (at < groups)).to(tl.int32), axis=0)
    left = K_GROUPS - above
    placed = tl.full([], 0, tl.int32)
    for first in range(0, groups, WIDTH):
        at = first + tl.arange(0, WIDTH)
        key = _key(tl.load(group_best + at, mask=at < groups, other=float("-inf")), SHIFT)
        equal = ((key == kth) & (at < groups)).to(tl.int32)
        take = ((key > kth) & (at < groups)) | ((equal > 0) & (tl.cumsum(equal, axis=0) <= left))
        left -= tl.minimum(tl.sum(equal, axis=0), left)
        place = placed + tl.cumsum(take.to(tl.int32), axis=0) - 1
        tl.store(chosen + place, at, mask=take)
        placed += tl.sum(take.to(tl.int32), axis=0)
    tl.debug_barrier()

    kth = tl.full([], lowest, tl.int32)
    step = tl.full([], 1 << (BITS - 2), tl.int32)
    for bit in range(BITS):
        higher = tl.where(bit == 0, 0, kth + step)
        count = tl.full([], 0, tl.int32)
        for first in range(0, K_GROUPS, FEW):
            key, token, real = _tokens_of(base, chosen, first, vocab, K_GROUPS, GROUP, FEW, SHIFT)
            count += tl.sum((real & (key >= higher)).to(tl.int32), axis=0)
        kth = tl.where(count >= K, higher, kth)
        step = tl.where(bit == 0, step, step >> 1)
    above = tl.full([], 0, tl.int32)
    for first in range(0, K_GROUPS, FEW):
        key, token, real = _tokens_of(base, chosen, first, vocab, K_GROUPS, GROUP, FEW, SHIFT)
        above += tl.sum((real & (key > kth)).to(tl.int32), axis=0)
    left = K - above
    placed = tl.full([], 0, tl.int32)
    for first in range(0, K_GROUPS, FEW):
        key, token, real = _tokens_of(base, chosen, first, vocab, K_GROUPS, GROUP, FEW, SHIFT)
        equal = (real & (key == kth)).to(tl.int32)
        take = (real & (key > kth)) | ((equal > 0) & (tl.cumsum(equal, axis=0) <= left))
        left -= tl.minimum(tl.sum(equal, axis=0), left)
        place = placed + tl.cumsum(take.to(tl.int32), axis=0) - 1
        tl.store(listed + place, ((~key).to(tl.int64) << 32) | token.to(tl.int64), mask=take)
        placed += tl.sum(take.to(tl.int32), axis=0)
    tl.debug_barrier()


@triton.jit
def _tokens_of(
    base: tl.tensor,
    chosen: tl.tensor,
    first: tl.tensor,
    vocab: tl.tensor,
    K_GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    FEW: tl.constexpr,
    SHIFT: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Keys and ids of FEW of the chosen groups' tokens in order of index, and which of them are real."""
    slot = first + tl.arange(0, FEW)
    member = tl.load(chosen + slot, mask=slot < K_GROUPS, other=0)
    token = member[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    real = (slot < K_GROUPS)[:, None] & (token < vocab)
    x = _clean(tl.load(base + token, mask=real, other=float("-inf")))
    size: tl.constexpr = FEW * GROUP
    return tl.reshape(_key(x, SHIFT), [size]), tl.reshape(token, [size]), tl.reshape(real, [size])


@triton.jit
def _how_many(
    add: tl.tensor, row: tl.tensor, floor: tl.tensor, length: tl.tensor, steps: tl.tensor, STRICT: tl.constexpr
) -> tl.tensor:
    """For each lane how many of the row's first `length` entries, which fall, have add + entry > floor (else >=)."""
    low = tl.zeros(add.shape, tl.int32)
    high = low + length
    for _ in range(steps):
        middle = (low + high) >> 1
        alive = low < high
        x = add + tl.load(row + middle, mask=alive, other=0.0)
        if STRICT:
            good = alive & (x > floor)
        else:
            good = alive & (x >= floor)
        high = tl.where(alive & (good == 0), middle, high)
        low = tl.where(good, middle + 1, low)
    return low


@triton.jit
def _how_many_near(
    add: tl.tensor, row: tl.tensor, floor: tl.tensor, length: tl.tensor, SIZE: tl.constexpr
) -> tl.tensor:
    """As _how_many, strictly above, of the row's first SIZE entries: in steps, each one's loads at once."""
    STEPS: tl.constexpr = 8 if SIZE <= 64 else 16
    STRIDE: tl.constexpr = SIZE // STEPS
    LAST: tl.constexpr = STRIDE if STRIDE <= 8 else 4
    many = tl.zeros(add.shape, tl.int32)
    for step in tl.static_range(1, STEPS):
        at = step * STRIDE - 1
        many += (add + tl.load(row + at, mask=length > at, other=float("-inf")) > floor).to(tl.int32)
    low = many * STRIDE
    many = tl.zeros(add.shape, tl.int32)
    for step in tl.static_range(1, STRIDE // LAST):
        at = low + step * LAST - 1
        many += (add + tl.load(row + at, mask=length > at, other=float("-inf")) > floor).to(tl.int32)
    low += many * LAST
    many = low
    for step in tl.static_range(LAST):
        at = low + step
        many += (add + tl.load(row + at, mask=length > at, other=float("-inf")) > floor).to(tl.int32)
    return many


@triton.jit
def _row_of(ends: tl.tensor, slot: tl.tensor, rows: tl.tensor, steps: tl.tensor) -> tl.tensor:
    """For each slot the number of running ends that are at or below it: the parent it belongs to."""
    low = tl.zeros(slot.shape, tl.int32)
    high = low + rows
    for _ in range(steps):
        middle = (low + high) >> 1
        alive = low < high
        end = tl.load(ends + middle, mask=alive, other=0)
        high = tl.where(alive & (end > slot), middle, high)
        low = tl.where(alive & (end <= slot), middle + 1, low)
    return low


@triton.jit
def _bit_length(x: tl.tensor) -> tl.tensor:
    """How many halvings a binary search over x entries needs."""
    exponent = (x.to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127
    return tl.maximum(exponent + 1, 0)


@triton.jit
def expand_kernel(
    log_probs: tl.tensor,
    lengths: tl.tensor,
    floors: tl.tensor,
    score: tl.tensor,
    parent: tl.tensor,
    rank: tl.tensor,
    child: tl.tensor,
    level_start: tl.tensor,
    ends: tl.tensor,
    totals: tl.tensor,
    depth: tl.tensor,
    K: tl.constexpr,
    BUDGET: tl.constexpr,
    LANES: tl.constexpr,
    MOST: tl.constexpr,
    ROOM: tl.constexpr,
    SPINE: tl.constexpr,
    NEAR: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One request: the entries of its tree, see _expand."""
    follow(PDL)
    n = tl.program_id(0).to(tl.int64)
    entries, levels, chained = _expand(
        log_probs + n * depth * K,
        lengths + n * depth,
        tl.load(floors + n),
        score + n * ROOM,
        parent + n * ROOM,
        rank + n * ROOM,
        child + n * ROOM,
        level_start + n * (depth + 2),
        ends + n * MOST,
        depth,
        K,
        BUDGET,
        LANES,
        MOST,
        SPINE,
        NEAR,
    )
    tl.store(totals + n * 3, entries)
    tl.store(totals + n * 3 + 1, levels)
    tl.store(totals + n * 3 + 2, chained)


@triton.jit
def _expand(
    log_probs: tl.tensor,
    lengths: tl.tensor,
    floor: tl.tensor,
    score: tl.tensor,
    parent: tl.tensor,
    rank: tl.tensor,
    child: tl.tensor,
    level_start: tl.tensor,
    ends: tl.tensor,
    depth: tl.tensor,
    K: tl.constexpr,
    BUDGET: tl.constexpr,
    LANES: tl.constexpr,
    MOST: tl.constexpr,
    SPINE: tl.constexpr,
    NEAR: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """One request: every prefix above the floor, level by level, each level in lexicographic order of its ranks.

    Entry 0 is the root. Children of one parent lie together in order of rank, so (level, position) is the tie rule.
    A level of fewer than NEAR entries below no more than NEAR is made without going through memory: its parents'
    scores are kept from the level before, a slot's parent is the number of running ends up to it, counted by histogram.
    Returns how many entries there are with the root, how many levels, and how many of those the spine reaches.
    """
    lane = tl.arange(0, LANES)
    tl.store(score, 0.0)
    tl.store(child, -1)
    tl.store(level_start, 0)
    tl.store(level_start + 1, 1)
    chained = tl.full([], 0, tl.int32)
    along = tl.full([], 0.0, tl.float32)
    near = tl.arange(0, NEAR)
    kept = tl.zeros([NEAR], tl.float32)  # scores of this level's parents, where held
    held = tl.full([], 1, tl.int32)
    length = tl.load(lengths)  # fetched one level ahead, and so the row, whose beginning is then in the cache
    row_near = tl.load(log_probs + near, mask=near < K, other=0.0)
    start = tl.full([], 0, tl.int32)  # this level's parents: rows entries from here
    rows = tl.full([], 1, tl.int32)
    level = tl.full([], 0, tl.int32)
    tl.debug_barrier()
    while (level < depth) & (rows > 0):
        row = log_probs + level * K
        after = tl.minimum(level + 1, depth - 1)
        length_after = tl.load(lengths + after)
        row_after = tl.load(log_probs + after * K + near, mask=near < K, other=0.0)
        steps = _bit_length(length)
        forced = tl.full([], 0, tl.int32)
        if SPINE:
            along += tl.load(row, mask=length > 0, other=float("-inf"))
            forced = ((along > float("-inf")) & (level < BUDGET)).to(tl.int32)
            chained += forced
        next_start = start + rows
        total = tl.full([], NEAR, tl.int32)
        each = tl.zeros([NEAR], tl.int32)
        if rows <= NEAR:
            if held == 0:
                kept = tl.load(score + start + near, mask=near < rows, other=float("-inf"))
            each = tl.where(near < rows, _how_many_near(kept, row, floor, length, NEAR), 0)
            if SPINE:
                each = tl.maximum(each, tl.where(near == 0, forced, 0))
            total = tl.sum(each, axis=0)
        if total < NEAR:
            upto = tl.cumsum(each, axis=0)
            # ends beyond the parents go to the last place, which no slot reaches
            whose = tl.cumsum(tl.histogram(tl.where(near < rows, upto, NEAR - 1), NEAR), axis=0)
            filled = near < total
            whose = tl.where(filled, whose, 0)
            which = tl.where(filled, near - tl.gather(upto - each, whose, axis=0), 0)
            kept = tl.gather(kept, whose, axis=0) + tl.gather(row_near, which, axis=0)
            held = tl.full([], 1, tl.int32)
            tl.store(score + next_start + near, kept, mask=filled)
            tl.store(parent + next_start + near, start + whose, mask=filled)
            tl.store(rank + next_start + near, which, mask=filled)
            tl.store(child + next_start + near, tl.full([NEAR], -1, tl.int32), mask=filled)
            tl.store(child + start + whose, next_start + near, mask=filled & (which == 0))
        else:
            held = tl.full([], 0, tl.int32)
            total = tl.full([], 0, tl.int32)
            for first in range(0, rows, LANES):
                have = first + lane < rows
                own = tl.load(score + start + first + lane, mask=have, other=float("-inf"))
                run = tl.where(have, _how_many(own, row, floor, length, steps, True), 0)
                if SPINE:
                    run = tl.maximum(run, tl.where(first + lane == 0, forced, 0))
                tl.store(ends + first + lane, total + tl.cumsum(run, axis=0), mask=have)
                total += tl.sum(run, axis=0)
            if total > MOST:
                # too many: find the score of the level's BUDGET-th, keep what is above it and of its equals the first
                bits = tl.full([], 0, tl.int32)
                step = tl.full([], 1 << 30, tl.int32)
                for _ in range(31):
                    nearer = bits + (step - 1)
                    cut = -(nearer.to(tl.float32, bitcast=True))
                    cut = tl.where(nearer > 0x7F7FFFFF, -FLOAT32_MAX, cut)
                    many = tl.full([], 0, tl.int32)
                    for first in range(0, rows, LANES):
                        own = tl.load(score + start + first + lane, mask=first + lane < rows, other=float("-inf"))
                        many += tl.sum(_how_many(own, row, cut, length, steps, False), axis=0)
                    bits = tl.where(many >= BUDGET, bits, bits + step)
                    step = step >> 1
                cut = -(bits.to(tl.float32, bitcast=True))
                left = tl.full([], BUDGET, tl.int32)
                for first in range(0, rows, LANES):
                    own = tl.load(score + start + first + lane, mask=first + lane < rows, other=float("-inf"))
                    left -= tl.sum(_how_many(own, row, cut, length, steps, True), axis=0)
                total = tl.full([], 0, tl.int32)
                tl.debug_barrier()
                for first in range(0, rows, LANES):
                    have = first + lane < rows
                    own = tl.load(score + start + first + lane, mask=have, other=float("-inf"))
                    better = _how_many(own, row, cut, length, steps, True)
                    equal = _how_many(own, row, cut, length, steps, False) - better
                    seen = tl.cumsum(equal, axis=0) - equal
                    run = better + tl.minimum(equal, tl.maximum(left - seen, 0))
                    left = tl.maximum(left - tl.sum(equal, axis=0), 0)
                    tl.store(ends + first + lane, total + tl.cumsum(run, axis=0), mask=have)
                    total += tl.sum(run, axis=0)
            tl.debug_barrier()
            steps = _bit_length(rows)
            for first in range(0, total, LANES):
                slot = first + lane
                live = slot < total
                above = _row_of(ends, slot, tl.where(live, rows, 0), steps)
                begin = tl.load(ends + above - 1, mask=live & (above > 0), other=0)
                place = slot - begin
                value = tl.load(score + start + above, mask=live, other=0.0) + tl.load(
                    row + place, mask=live, other=0.0
                )
                tl.store(score + next_start + slot, value, mask=live)
                tl.store(parent + next_start + slot, start + above, mask=live)
                tl.store(rank + next_start + slot, place, mask=live)
                tl.store(child + next_start + slot, tl.full([LANES], -1, tl.int32), mask=live)
                tl.store(child + start + above, next_start + slot, mask=live & (place == 0))
        start = next_start
        rows = total
        length = length_after
        row_near = row_after
        level += 1
        tl.store(level_start + level + 1, start + rows)
        tl.debug_barrier()
    return start + rows, level, chained


@triton.jit
def rank_kernel(
    score: tl.tensor,
    rank: tl.tensor,
    level_start: tl.tensor,
    totals: tl.tensor,
    top_token: tl.tensor,
    root_tokens: tl.tensor,
    node_of: tl.tensor,
    entry_of: tl.tensor,
    tokens: tl.tensor,
    depths: tl.tensor,
    scores: tl.tensor,
    counts: tl.tensor,
    depth: tl.tensor,
    K: tl.constexpr,
    BUDGET: tl.constexpr,
    ROOM: tl.constexpr,
    EACH: tl.constexpr,
    CHUNK: tl.constexpr,
    DEPTH_PAD: tl.constexpr,
    SPINE: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """Entries of one request get their places in the tree, see _rank."""
    follow(PDL)
    n = tl.program_id(1).to(tl.int64)
    out = n * (BUDGET + 1)
    _rank(
        score + n * ROOM,
        rank + n * ROOM,
        level_start + n * (depth + 2),
        tl.load(totals + n * 3),
        tl.load(totals + n * 3 + 1),
        tl.load(totals + n * 3 + 2),
        top_token + n * depth * K,
        root_tokens + n,
        node_of + n * ROOM,
        entry_of + out,
        tokens + out,
        depths + out,
        scores + out,
        counts + n,
        tl.program_id(0),
        tl.num_programs(0),
        K,
        BUDGET,
        EACH,
        CHUNK,
        DEPTH_PAD,
        SPINE,
    )


@triton.jit
def _rank(
    score: tl.tensor,
    rank: tl.tensor,
    level_start: tl.tensor,
    entries: tl.tensor,
    levels: tl.tensor,
    chained: tl.tensor,
    top_token: tl.tensor,
    root_tokens: tl.tensor,
    node_of: tl.tensor,
    entry_of: tl.tensor,
    tokens: tl.tensor,
    depths: tl.tensor,
    scores: tl.tensor,
    counts: tl.tensor,
    part: tl.tensor,
    parts: tl.tensor,
    K: tl.constexpr,
    BUDGET: tl.constexpr,
    EACH: tl.constexpr,
    CHUNK: tl.constexpr,
    DEPTH_PAD: tl.constexpr,
    SPINE: tl.constexpr,
) -> None:
    """One of the parts of a request's entries: each one's place in the tree is how many entries come before it."""
    step = tl.arange(0, DEPTH_PAD)
    begins = tl.load(level_start + 1 + step, mask=step < levels, other=0x7FFFFFFF)  # of depth step + 1
    for first in range(1 + part * EACH, entries, parts * EACH):
        entry = first + tl.arange(0, EACH)
        live = entry < entries
        own = tl.load(score + entry, mask=live, other=float("-inf"))
        before = tl.zeros([EACH], tl.int32)
        for other in range(1, entries, CHUNK):
            them = other + tl.arange(0, CHUNK)
            theirs = tl.load(score + them, mask=them < entries, other=float("-inf"))
            ahead = (theirs[None, :] > own[:, None]) | (
                (theirs[None, :] == own[:, None]) & (them[None, :] < entry[:, None])
            )
            before += tl.sum(ahead.to(tl.int32), axis=1)
        depth_of = tl.sum((begins[None, :] <= entry[:, None]).to(tl.int32), axis=1)
        chosen = live & (before < BUDGET)
        if SPINE:
            # the chain is each level's first entry
            link = tl.load(score + begins, mask=step < chained, other=float("-inf"))
            links = (link[None, :] > own[:, None]) | (
                (link[None, :] == own[:, None]) & (begins[None, :] < entry[:, None])
            )
            links = tl.sum((links & (step < chained)[None, :]).to(tl.int32), axis=1)
            is_link = tl.max(((begins[None, :] == entry[:, None]) & (step < chained)[None, :]).to(tl.int32), axis=1) > 0
            others = before - links
            chosen = live & (is_link | (others < BUDGET - chained))
            before = tl.where(is_link, links + tl.minimum(others, BUDGET - chained), before)
        node = before + 1
        tl.store(node_of + entry, tl.where(chosen, node, -1), mask=live)
        at = tl.load(rank + entry, mask=chosen, other=0)
        token = tl.load(top_token + (depth_of - 1) * K + at, mask=chosen, other=0)
        tl.store(entry_of + node, entry, mask=chosen)
        tl.store(tokens + node, token.to(tl.int64), mask=chosen)
        tl.store(depths + node, depth_of, mask=chosen)
        tl.store(scores + node, own, mask=chosen)
    if part == 0:
        tl.store(node_of, 0)
        tl.store(entry_of, 0)
        tl.store(tokens, tl.load(root_tokens).to(tl.int64))
        tl.store(depths, 0)
        tl.store(scores, 0.0)
        tl.store(counts, tl.minimum(entries, BUDGET + 1))


@triton.jit
def links_kernel(
    parent: tl.tensor,
    child: tl.tensor,
    totals: tl.tensor,
    node_of: tl.tensor,
    entry_of: tl.tensor,
    tokens: tl.tensor,
    parents: tl.tensor,
    depths: tl.tensor,
    scores: tl.tensor,
    visibility: tl.tensor,
    first_child: tl.tensor,
    next_sibling: tl.tensor,
    NODES: tl.constexpr,
    ROOM: tl.constexpr,
    WORDS: tl.constexpr,
    WORDS_PAD: tl.constexpr,
    EACH: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """EACH nodes of one request, see _links."""
    follow(PDL)
    n = tl.program_id(1).to(tl.int64)
    out = n * NODES
    _links(
        parent + n * ROOM,
        child + n * ROOM,
        tl.load(totals + n * 3),
        tl.load(totals + n * 3 + 1),
        node_of + n * ROOM,
        entry_of + out,
        tokens + out,
        parents + out,
        depths + out,
        scores + out,
        visibility + out * WORDS,
        first_child + out,
        next_sibling + out,
        tl.program_id(0) * EACH,
        NODES,
        WORDS,
        WORDS_PAD,
        EACH,
    )


@triton.jit
def _links(
    parent: tl.tensor,
    child: tl.tensor,
    entries: tl.tensor,
    levels: tl.tensor,
    node_of: tl.tensor,
    entry_of: tl.tensor,
    tokens: tl.tensor,
    parents: tl.tensor,
    depths: tl.tensor,
    scores: tl.tensor,
    visibility: tl.tensor,
    first_child: tl.tensor,
    next_sibling: tl.tensor,
    first: tl.tensor,
    NODES: tl.constexpr,
    WORDS: tl.constexpr,
    WORDS_PAD: tl.constexpr,
    EACH: tl.constexpr,
) -> None:
    """EACH nodes of one request: parent, ancestors' bits, first child, next sibling; and the padding of all outputs."""
    node = first + tl.arange(0, EACH)
    live = node < tl.minimum(entries, NODES)
    entry = tl.load(entry_of + node, mask=live, other=0)
    below_root = live & (entry > 0)
    up = tl.load(parent + entry, mask=below_root, other=-1)
    tl.store(parents + node, tl.load(node_of + up, mask=below_root, other=-1), mask=node < NODES)
    down = tl.load(child + entry, mask=live, other=-1)
    tl.store(first_child + node, tl.load(node_of + down, mask=live & (down >= 0), other=-1), mask=node < NODES)
    beside = below_root & (entry + 1 < entries)
    beside = beside & (tl.load(parent + entry + 1, mask=beside, other=-2) == up)
    tl.store(next_sibling + node, tl.load(node_of + entry + 1, mask=beside, other=-1), mask=node < NODES)

    word = tl.arange(0, WORDS_PAD)
    one = tl.full([EACH, WORDS_PAD], 1, tl.int64)
    bits = tl.where(live[:, None] & (word == 0)[None, :], one, 0)  # the root
    at = tl.where(below_root, entry, 0)
    for _ in range(levels):
        bit = tl.load(node_of + at, mask=at > 0, other=0)
        here = (at > 0)[:, None] & ((bit >> 6)[:, None] == word[None, :])
        bits |= tl.where(here, one << (bit & 63).to(tl.int64)[:, None], 0)
        at = tl.load(parent + at, mask=at > 0, other=0)
    inside = (node < NODES)[:, None] & (word < WORDS)[None, :]
    tl.store(visibility + node[:, None] * WORDS + word[None, :], bits, mask=inside)

    empty = (node < NODES) & (live == 0)
    none = tl.full([EACH], -1, tl.int32)
    tl.store(tokens + node, none.to(tl.int64), mask=empty)
    tl.store(depths + node, none, mask=empty)
    tl.store(scores + node, none.to(tl.float32), mask=empty)


@triton.jit
def grow_kernel(
    row_step: tl.tensor,
    step_counts: tl.tensor,
    path_counts: tl.tensor,
    log_probs: tl.tensor,
    lengths: tl.tensor,
    top_token: tl.tensor,
    root_tokens: tl.tensor,
    score: tl.tensor,
    parent: tl.tensor,
    rank: tl.tensor,
    child: tl.tensor,
    level_start: tl.tensor,
    ends: tl.tensor,
    node_of: tl.tensor,
    entry_of: tl.tensor,
    tokens: tl.tensor,
    parents: tl.tensor,
    depths: tl.tensor,
    scores: tl.tensor,
    counts: tl.tensor,
    visibility: tl.tensor,
    first_child: tl.tensor,
    next_sibling: tl.tensor,
    depth: tl.tensor,
    K: tl.constexpr,
    BUDGET: tl.constexpr,
    LANES: tl.constexpr,
    MOST: tl.constexpr,
    ROOM: tl.constexpr,
    SPINE: tl.constexpr,
    NEAR: tl.constexpr,
    DEPTH_PAD: tl.constexpr,
    BINS: tl.constexpr,
    PER_NAT: tl.constexpr,
    EACH: tl.constexpr,
    CHUNK: tl.constexpr,
    LINKED: tl.constexpr,
    WORDS: tl.constexpr,
    WORDS_PAD: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One request with a small budget, from its ranked tokens on: floor, entries, places and links in one launch."""
    follow(PDL)
    n = tl.program_id(0).to(tl.int64)
    level = tl.arange(0, DEPTH_PAD)
    chain = tl.cumsum(tl.load(row_step + n * depth + level, mask=level < depth, other=0.0), axis=0)
    at = n * depth * BINS
    floor = _floor(chain, step_counts + at, path_counts + at, depth, BUDGET, DEPTH_PAD, BINS, PER_NAT)
    score += n * ROOM
    parent += n * ROOM
    rank += n * ROOM
    child += n * ROOM
    node_of += n * ROOM
    level_start += n * (depth + 2)
    out = n * (BUDGET + 1)
    entries, levels, chained = _expand(
        log_probs + n * depth * K,
        lengths + n * depth,
        floor,
        score,
        parent,
        rank,
        child,
        level_start,
        ends + n * MOST,
        depth,
        K,
        BUDGET,
        LANES,
        MOST,
        SPINE,
        NEAR,
    )
    tl.debug_barrier()
    _rank(
        score,
        rank,
        level_start,
        entries,
        levels,
        chained,
        top_token + n * depth * K,
        root_tokens + n,
        node_of,
        entry_of + out,
        tokens + out,
        depths + out,
        scores + out,
        counts + n,
        0,
        1,
        K,
        BUDGET,
        EACH,
        CHUNK,
        DEPTH_PAD,
        SPINE,
    )
    tl.debug_barrier()
    for first in range(0, BUDGET + 1, LINKED):
        _links(
            parent,
            child,
            entries,
            levels,
            node_of,
            entry_of + out,
            tokens + out,
            parents + out,
            depths + out,
            scores + out,
            visibility + out * WORDS,
            first_child + out,
            next_sibling + out,
            first,
            BUDGET + 1,
            WORDS,
            WORDS_PAD,
            LINKED,
        )
