"""Kernels of tree_build's first half: ranked tokens of each row that can be in a tree, and the floor that says which.

README.md beside this derives them, ranking.py launches them. Every kernel is one launch without host synchronisation;
scratch needs no clearing, because only written entries are read. Shapes are static, counts are read on the device.
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
    floor = floor_of_losses(chain, step_counts + at, path_counts + at, depth, BUDGET, DEPTH_PAD, BINS, PER_NAT)
    tl.store(floors + n, floor)


@triton.jit
def floor_of_losses(
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
