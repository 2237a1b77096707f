"""Kernels of tree_build: group maxima, exact top-k of a row, selection of the tree, links and visibility.

README.md beside this derives them. Every kernel is one launch without host synchronisation; scratch needs no clearing,
because only written entries are read. Shapes are static, counts are read on the device.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ddtree_kernels.ops.pdl import follow, lead

FLOAT32_MAX = tl.constexpr(3.4028234663852886e38)
LOWEST = tl.constexpr(-2147483648)
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
    coarse_best: tl.tensor,
    part_sum: tl.tensor,
    stride_n: tl.tensor,
    stride_l: tl.tensor,
    depth: tl.tensor,
    vocab: tl.tensor,
    groups: tl.tensor,
    exponent_scale: tl.tensor,
    GROUP: tl.constexpr,
    GROUPS_EACH: tl.constexpr,
    COARSE_EACH: tl.constexpr,
    LEAN: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One pass over the logits: the maximum of every group of GROUP tokens, coarser maxima, each split's sum of exp.

    The sum is relative to the split's own maximum, which is the maximum of its COARSE_EACH coarse maxima.
    LEAN: as few instructions a token as can be, since at large batches these and not the bytes are the limit. A maximum
    drops NaN by itself; in the sum NaN and +inf show in the result, and only then it is taken again with care,
    from memory, so that the tokens need not be kept.
    """
    lead(PDL)
    row = tl.program_id(1).to(tl.int64)
    split = tl.program_id(0)
    base = logits + (row // depth) * stride_n + (row % depth) * stride_l
    group = split * GROUPS_EACH + tl.arange(0, GROUPS_EACH)
    token = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(base + token, mask=token < vocab, other=float("-inf")).to(tl.float32)
    if not LEAN:
        x = tl.where(x == x, x, float("-inf"))
    best = _clean(tl.max(x, axis=1))
    top = tl.max(best, axis=0)
    at = row * tl.num_programs(0) + split
    shift = tl.where(top == float("-inf"), 0.0, top * exponent_scale)
    if LEAN:
        total = tl.sum(tl.exp2(x * exponent_scale - shift))
        if (total < 1e30) == 0:
            again = tl.load(base + token, mask=token < vocab, other=float("-inf")).to(tl.float32)
            total = tl.sum(_weight(tl.where(again == again, again, float("-inf")), exponent_scale, shift))
        tl.store(part_sum + at, total)
    else:
        tl.store(part_sum + at, tl.sum(tl.sum(_weight(x, exponent_scale, shift), axis=1), axis=0))
    tl.store(group_best + row * groups + group, best, mask=group < groups)
    if COARSE_EACH == 1:
        tl.store(coarse_best + at, top)
    else:
        coarse = tl.max(tl.reshape(best, [COARSE_EACH, GROUPS_EACH // COARSE_EACH]), axis=1)
        tl.store(coarse_best + at * COARSE_EACH + tl.arange(0, COARSE_EACH), coarse)


@triton.jit
def _weight(x: tl.tensor, exponent_scale: tl.tensor, shift: tl.tensor) -> tl.tensor:
    """exp of the distance to the maximum, 1 at most: +inf and rounding are held by the minimum."""
    return tl.exp2(tl.minimum(x * exponent_scale - shift, 0.0))


@triton.jit
def floor_kernel(
    coarse_best: tl.tensor,
    part_sum: tl.tensor,
    row_shift: tl.tensor,
    row_log_total: tl.tensor,
    row_chain: tl.tensor,
    step_counts: tl.tensor,
    path_counts: tl.tensor,
    floors: tl.tensor,
    depth: tl.tensor,
    splits: tl.tensor,
    inverse_temperature: tl.tensor,
    K: tl.constexpr,
    BUDGET: tl.constexpr,
    DEPTH_PAD: tl.constexpr,
    SPLITS_PAD: tl.constexpr,
    COARSE_EACH: tl.constexpr,
    BINS: tl.constexpr,
    PER_NAT: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One request: log-sum-exp of its rows, the argmax chain's scores, and a score that the BUDGET best surely exceed.

    Counts prefixes made of coarse groups' best tokens by what they lose against the argmax chain, in bins of
    1 / PER_NAT nats, each token's loss rounded up: the counts of one level more are the convolution of the counts so
    far with those of its tokens. All counted are real prefixes, none worse than its bin says, so BUDGET of them bound
    the floor.
    """
    follow(PDL)
    n = tl.program_id(0).to(tl.int64)
    level = tl.arange(0, DEPTH_PAD)
    part = tl.arange(0, SPLITS_PAD)
    real_part = (level < depth)[:, None] & (part < splits)[None, :]
    at = (n * depth + level)[:, None] * splits + part[None, :]
    lane = tl.arange(0, SPLITS_PAD * COARSE_EACH)
    real = (level < depth)[:, None] & (lane < splits * COARSE_EACH)[None, :]
    x = tl.load(
        coarse_best + (n * depth + level)[:, None] * (splits * COARSE_EACH) + lane[None, :],
        mask=real,
        other=float("-inf"),
    )
    z = tl.minimum(x * inverse_temperature, FLOAT32_MAX)
    part_top = tl.max(tl.reshape(z, [DEPTH_PAD, SPLITS_PAD, COARSE_EACH]), axis=2)
    sums = tl.load(part_sum + at, mask=real_part, other=0.0)
    top = tl.max(z, axis=1)
    shift = tl.where(top == float("-inf"), 0.0, top)
    log_total = tl.log(tl.maximum(tl.sum(sums * tl.exp(part_top - shift[:, None]), axis=1), 1.0))
    chain_step = tl.minimum((top - shift) - log_total, 0.0)
    chain = tl.cumsum(tl.where(level < depth, chain_step, 0.0), axis=0)
    before = tl.where(level == 0, 0.0, chain - chain_step)
    before = tl.where(before == before, before, float("-inf"))
    tl.store(row_shift + n * depth + level, shift, mask=level < depth)
    tl.store(row_log_total + n * depth + level, log_total, mask=level < depth)
    tl.store(row_chain + n * depth + level, before, mask=level < depth)

    step_counts += n * DEPTH_PAD * BINS
    path_counts += n * (DEPTH_PAD + 1) * BINS
    loss = (top[:, None] - z) * PER_NAT
    near = real & (loss <= BINS - 2)
    bin_of = tl.where(near, tl.ceil(loss), BINS - 1).to(tl.int32)  # the last bin is for what is not counted
    bin_of = tl.reshape(level[:, None] * BINS + bin_of, [DEPTH_PAD * SPLITS_PAD * COARSE_EACH])
    bins = tl.arange(0, BINS)
    counts = tl.reshape(tl.histogram(bin_of, DEPTH_PAD * BINS), [DEPTH_PAD, BINS])
    counts = tl.where(bins[None, :] < BINS - 1, counts, 0)
    upto = tl.cumsum(counts, axis=1)
    counts = tl.minimum(upto, K) - tl.minimum(upto - counts, K)  # no more than K tokens of a level are ever used
    lane_at = level[:, None] * BINS + bins[None, :]
    tl.store(step_counts + lane_at, counts.to(tl.float32))
    tl.store(path_counts + bins, tl.where(bins == 0, 1.0, 0.0))
    tl.debug_barrier()
    apart = bins[:, None] - bins[None, :]
    for d in range(depth):
        step = tl.load(step_counts + d * BINS + bins)
        paths = tl.load(path_counts + d * BINS + apart, mask=apart >= 0, other=0.0)
        paths = tl.minimum(tl.sum(paths * step[None, :], axis=1), 1e5)
        tl.store(path_counts + (d + 1) * BINS + bins, paths)
        tl.debug_barrier()
    many = tl.load(path_counts + BINS + lane_at, mask=(level < depth)[:, None], other=0.0)
    score = chain[:, None] - bins[None, :].to(tl.float32) / PER_NAT
    low = -64.0
    high = 0.0
    for _ in range(10):
        middle = 0.5 * (low + high)
        enough = tl.sum(tl.where(score >= middle, many, 0.0)) >= BUDGET
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    # sums were taken in another order than the tree's
    floor = low - 1e-3 - 1e-5 * tl.abs(low)
    tl.store(floors + n, tl.where(low > -64.0, floor, float("-inf")))


@triton.jit
def _key(x: tl.tensor, SHIFT: tl.constexpr) -> tl.tensor:
    """int32 that orders like the float; SHIFT low bits, which the logits' type never sets, are dropped."""
    bits = x.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)) >> SHIFT


@triton.jit
def _value(key: tl.tensor, SHIFT: tl.constexpr) -> tl.tensor:
    """The float of a key."""
    wide = key << SHIFT
    wide = tl.where(key < 0, wide | ((1 << SHIFT) - 1), wide)
    return (wide ^ ((wide >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _kth_largest(key: tl.tensor, k: tl.tensor, BITS: tl.constexpr) -> tl.tensor:
    """The k-th largest key, bit by bit; at least k keys must be real, padding is LOWEST."""
    lowest: tl.constexpr = -(1 << (BITS - 1))
    found = tl.where(tl.sum((key >= 0).to(tl.int32), axis=0) >= k, 0, lowest)
    step = 1 << (BITS - 2)
    for _ in range(BITS - 1):
        higher = found + step
        found = tl.where(tl.sum((key >= higher).to(tl.int32), axis=0) >= k, higher, found)
        step = step >> 1
    return found


@triton.jit
def _places(key: tl.tensor, k: tl.tensor, BITS: tl.constexpr, WIDE: tl.constexpr) -> tl.tensor:
    """Where each of the k best keys goes in a list of k in index order, -1 for the rest; ties go to the lower index."""
    kth = _kth_largest(key, k, BITS)
    above = key > kth
    equal = key == kth
    # both running counts in one scan
    if WIDE:
        packed = tl.cumsum(above.to(tl.int64) + (equal.to(tl.int64) << 32), axis=0)
        seen_above = (packed & 0xFFFFFFFF).to(tl.int32)
        seen_equal = (packed >> 32).to(tl.int32)
    else:
        packed = tl.cumsum(above.to(tl.int32) + (equal.to(tl.int32) << 16), axis=0)
        seen_above = packed & 0xFFFF
        seen_equal = packed >> 16
    wanted = k - tl.sum(above.to(tl.int32), axis=0)
    chosen = above | (equal & (seen_equal <= wanted))
    return tl.where(chosen, seen_above + tl.minimum(seen_equal, wanted) - 1, -1)


@triton.jit
def _log_prob(x: tl.tensor, inverse_temperature: tl.tensor, shift: tl.tensor, log_total: tl.tensor) -> tl.tensor:
    """log p of cleaned logits."""
    z = tl.minimum(x * inverse_temperature, FLOAT32_MAX)
    return tl.minimum((z - shift) - log_total, 0.0)


@triton.jit
def _ranked(
    found_key: tl.tensor,
    found_token: tl.tensor,
    top_log_prob: tl.tensor,
    top_token: tl.tensor,
    many: tl.tensor,
    inverse_temperature: tl.tensor,
    shift: tl.tensor,
    log_total: tl.tensor,
    SIZE: tl.constexpr,
    SHIFT: tl.constexpr,
) -> None:
    """Writes the found tokens in rank order: higher logit, then lower token."""
    slot = tl.arange(0, SIZE)
    key = tl.load(found_key + slot, mask=slot < many, other=0)
    token = tl.load(found_token + slot, mask=slot < many, other=0)
    both = ((~key).to(tl.int64) << 32) | token.to(tl.int64)
    both = tl.sort(tl.where(slot < many, both, HIGHEST64))
    x = _value(~((both >> 32).to(tl.int32)), SHIFT)
    tl.store(top_log_prob + slot, _log_prob(x, inverse_temperature, shift, log_total), mask=slot < many)
    tl.store(top_token + slot, (both & 0xFFFFFFFF).to(tl.int32), mask=slot < many)


@triton.jit
def row_top_kernel(
    logits: tl.tensor,
    group_best: tl.tensor,
    row_shift: tl.tensor,
    row_log_total: tl.tensor,
    row_chain: tl.tensor,
    floors: tl.tensor,
    group_list: tl.tensor,
    found_key: tl.tensor,
    found_token: tl.tensor,
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
    K_PAD: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS_PAD: tl.constexpr,
    CHUNK: tl.constexpr,
    SMALL: tl.constexpr,
    SHIFT: tl.constexpr,
    WIDE: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One row: its best tokens in rank order with their log-probabilities, K at most.

    Only tokens that the floor leaves a chance are wanted: those of the groups whose maximum has one. Where they are too
    many, the K best; these lie in the K groups with the best maxima, so only those are read again.
    """
    follow(PDL)
    BITS: tl.constexpr = 32 - SHIFT
    lowest: tl.constexpr = -(1 << (BITS - 1))
    row = tl.program_id(0).to(tl.int64)
    shift = tl.load(row_shift + row)
    log_total = tl.load(row_log_total + row)
    # what a prefix that ends here may lose; slack for sums in another order
    floor = tl.load(floors + row // depth)
    least = floor - tl.load(row_chain + row) - 1e-3 - 1e-5 * tl.abs(floor)
    least = tl.where((least == least) & (floor > float("-inf")), least, float("-inf"))
    base = logits + (row // depth) * stride_n + (row % depth) * stride_l
    group_list += row * K_PAD
    found_key += row * K_PAD
    found_token += row * K_PAD
    top_log_prob += row * K
    top_token += row * K

    group = tl.arange(0, GROUPS_PAD)
    best = tl.load(group_best + row * groups + group, mask=group < groups, other=float("-inf"))
    top = tl.max(best, axis=0)
    lp = _log_prob(best, inverse_temperature, shift, log_total)
    chance = (group < groups) & ((lp > least) | (best == top)) & (best > float("-inf"))
    grouped = tl.sum(chance.to(tl.int32), axis=0)
    many = tl.full([], 0, tl.int32)
    if grouped <= K_GROUPS:
        place = tl.cumsum(chance.to(tl.int32), axis=0) - 1
        tl.store(group_list + place, group, mask=chance)
        tl.debug_barrier()
        for start in range(0, grouped, CHUNK):
            slot = start + tl.arange(0, CHUNK)
            member = tl.load(group_list + slot, mask=slot < grouped, other=0)
            token = member[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
            real = (slot[:, None] < grouped) & (token < vocab)
            x = _clean(tl.load(base + token, mask=real, other=float("-inf")))
            better = _log_prob(x, inverse_temperature, shift, log_total) > least
            good = tl.reshape(real & (better | (x == top)) & (x > float("-inf")), [CHUNK * GROUP])
            at = many + tl.cumsum(good.to(tl.int32), axis=0) - 1
            good = good & (at < K_PAD)
            tl.store(found_key + at, tl.reshape(_key(x, SHIFT), [CHUNK * GROUP]), mask=good)
            tl.store(found_token + at, tl.reshape(token, [CHUNK * GROUP]), mask=good)
            many = tl.max(tl.where(good, at, many - 1), axis=0) + 1
    # a full list may have been cut; K itself would be exact only by luck
    if (grouped > K_GROUPS) | (many > K) | (many == K_PAD):
        best_key = tl.where(group < groups, _key(best, SHIFT), lowest)
        place = _places(best_key, K_GROUPS, BITS, WIDE)
        tl.debug_barrier()
        tl.store(group_list + place, group, mask=place >= 0)
        tl.debug_barrier()
        slot = tl.arange(0, K_PAD)
        member = tl.load(group_list + slot, mask=slot < K_GROUPS, other=0)
        token = member[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
        real = (slot[:, None] < K_GROUPS) & (token < vocab)
        x = _clean(tl.load(base + token, mask=real, other=float("-inf")))
        key = tl.reshape(tl.where(real, _key(x, SHIFT), lowest), [K_PAD * GROUP])
        place = _places(key, K, BITS, WIDE)
        tl.store(found_key + place, key, mask=place >= 0)
        tl.store(found_token + place, tl.reshape(token, [K_PAD * GROUP]), mask=place >= 0)
        many = tl.full([], K, tl.int32)
    tl.store(lengths + row, many)
    tl.debug_barrier()
    if SMALL < K_PAD:
        if many <= SMALL:
            _ranked(
                found_key,
                found_token,
                top_log_prob,
                top_token,
                many,
                inverse_temperature,
                shift,
                log_total,
                SMALL,
                SHIFT,
            )
        else:
            _ranked(
                found_key,
                found_token,
                top_log_prob,
                top_token,
                many,
                inverse_temperature,
                shift,
                log_total,
                K_PAD,
                SHIFT,
            )
    else:
        _ranked(
            found_key, found_token, top_log_prob, top_token, many, inverse_temperature, shift, log_total, K_PAD, SHIFT
        )


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
    near = (group < groups) & (loss <= BINS - 2)
    bin_of = tl.where(near, tl.ceil(loss), BINS - 1).to(tl.int32)  # the last bin is for what is not counted
    bins = tl.arange(0, BINS)
    counts = tl.where(bins < BINS - 1, tl.histogram(bin_of, BINS), 0)
    upto = tl.cumsum(counts, axis=0)
    edge = tl.min(tl.where((upto >= K) & (bins < BINS - 1), bins, BINS), axis=0)
    tl.store(row_edge + row, tl.where(edge < BINS, edge.to(tl.float32), float("inf")))
    counts = tl.minimum(upto, K) - tl.minimum(upto - counts, K)  # no more than K tokens of a level are ever used
    tl.store(step_counts + row * BINS + bins, counts.to(tl.float32))


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
    """One request: the argmax chain's scores, and a score that the BUDGET best surely exceed.

    Counts prefixes by what they lose against the argmax chain: those of one level more are the convolution of the
    counts so far with those of its tokens. All counted are real prefixes, none worse than its bin says, so BUDGET of
    them bound the floor. The counts so far stay in registers; the next level's come from memory one step ahead.
    """
    follow(PDL)
    n = tl.program_id(0).to(tl.int64)
    level = tl.arange(0, DEPTH_PAD)
    chain_step = tl.load(row_step + n * depth + level, mask=level < depth, other=0.0)
    bins = tl.arange(0, BINS)
    apart = bins[:, None] - bins[None, :]
    step_counts += n * depth * BINS
    path_counts += n * depth * BINS
    step = tl.load(step_counts + apart, mask=apart >= 0, other=0.0)
    chain = tl.cumsum(chain_step, axis=0)
    before = tl.where(level == 0, 0.0, chain - chain_step)
    before = tl.where(before == before, before, float("-inf"))
    tl.store(row_chain + n * depth + level, before, mask=level < depth)
    paths = tl.where(bins == 0, 1.0, 0.0)
    for d in range(depth):
        ahead = tl.load(step_counts + tl.minimum(d + 1, depth - 1) * BINS + apart, mask=apart >= 0, other=0.0)
        paths = tl.minimum(tl.sum(step * paths[None, :], axis=1), 1e5)
        tl.store(path_counts + d * BINS + bins, paths)
        step = ahead
    tl.debug_barrier()
    lane_at = level[:, None] * BINS + bins[None, :]
    many = tl.load(path_counts + lane_at, mask=(level < depth)[:, None], other=0.0)
    score = chain[:, None] - bins[None, :].to(tl.float32) / PER_NAT
    low = -64.0
    high = 0.0
    for _ in range(10):
        middle = 0.5 * (low + high)
        enough = tl.sum(tl.where(score >= middle, many, 0.0)) >= BUDGET
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    # sums were taken in another order than the tree's
    floor = low - 1e-3 - 1e-5 * tl.abs(low)
    tl.store(floors + n, tl.where(low > -64.0, floor, float("-inf")))


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
    stride_n: tl.tensor,
    stride_l: tl.tensor,
    depth: tl.tensor,
    vocab: tl.tensor,
    groups: tl.tensor,
    inverse_temperature: tl.tensor,
    GROUP: tl.constexpr,
    EACH: tl.constexpr,
    STEPS: tl.constexpr,
    ROOM: tl.constexpr,
    SHIFT: tl.constexpr,
    PER_NAT: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """EACH * STEPS groups of one row: lists the tokens that may be of use, in no order, as (order of the logit, token).

    Of use are those that the floor leaves a chance and that may be among the row's K best. `found` counts all of them;
    where they are more than ROOM the list is not complete.
    """
    follow(PDL)
    row = tl.program_id(1).to(tl.int64)
    base = logits + (row // depth) * stride_n + (row % depth) * stride_l
    first = tl.program_id(0) * (EACH * STEPS)
    all_of = first + tl.arange(0, EACH * STEPS)
    best_of = tl.load(group_best + row * groups + all_of, mask=all_of < groups, other=float("-inf"))
    top = tl.load(row_top + row)
    shift = tl.load(row_shift + row)
    log_total = tl.load(row_log_total + row)
    edge = tl.load(row_edge + row)
    least = _least(tl.load(floors + row // depth), tl.load(row_chain + row))
    chances = _useful(best_of, top, shift, log_total, edge, least, inverse_temperature, PER_NAT)
    if tl.max(chances.to(tl.int32), axis=0) > 0:
        for step in range(STEPS):
            group = first + step * EACH + tl.arange(0, EACH)
            best = tl.load(group_best + row * groups + group, mask=group < groups, other=float("-inf"))
            chance = _useful(best, top, shift, log_total, edge, least, inverse_temperature, PER_NAT)
            if tl.max(chance.to(tl.int32), axis=0) > 0:
                token = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
                real = chance[:, None] & (token < vocab)
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
    QUICK: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One request: every prefix above the floor, level by level, each level in lexicographic order of its ranks.

    Entry 0 is the root. Children of one parent lie together in order of rank, so (level, position) is the tie rule.
    A level of fewer than QUICK entries below no more than QUICK is made without going through memory: its parents'
    scores are kept from the level before, a slot's parent is the number of running ends up to it, counted by histogram.
    """
    follow(PDL)
    n = tl.program_id(0).to(tl.int64)
    log_probs += n * depth * K
    lengths += n * depth
    score += n * ROOM
    parent += n * ROOM
    rank += n * ROOM
    child += n * ROOM
    level_start += n * (depth + 2)
    ends += n * MOST
    lane = tl.arange(0, LANES)
    floor = tl.load(floors + n)
    tl.store(score, 0.0)
    tl.store(child, -1)
    tl.store(level_start, 0)
    tl.store(level_start + 1, 1)
    chained = tl.full([], 0, tl.int32)
    along = tl.full([], 0.0, tl.float32)
    NEAR: tl.constexpr = QUICK if QUICK > 0 else 16
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
        total = tl.full([], QUICK, tl.int32)
        each = tl.zeros([NEAR], tl.int32)
        if rows <= QUICK:
            if held == 0:
                kept = tl.load(score + start + near, mask=near < rows, other=float("-inf"))
            each = tl.where(near < rows, _how_many(kept, row, floor, length, steps, True), 0)
            if SPINE:
                each = tl.maximum(each, tl.where(near == 0, forced, 0))
            total = tl.sum(each, axis=0)
        if total < QUICK:
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
    tl.store(totals + n * 3, start + rows)
    tl.store(totals + n * 3 + 1, level)
    tl.store(totals + n * 3 + 2, chained)


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
    """Entries of one request: each one's place in the tree is how many entries come before it."""
    follow(PDL)
    n = tl.program_id(1).to(tl.int64)
    score += n * ROOM
    rank += n * ROOM
    node_of += n * ROOM
    level_start += n * (depth + 2)
    size: tl.constexpr = BUDGET + 1
    entries = tl.load(totals + n * 3)
    levels = tl.load(totals + n * 3 + 1)
    chained = tl.load(totals + n * 3 + 2)
    step = tl.arange(0, DEPTH_PAD)
    begins = tl.load(level_start + 1 + step, mask=step < levels, other=0x7FFFFFFF)  # of depth step + 1
    for first in range(1 + tl.program_id(0) * EACH, entries, tl.num_programs(0) * EACH):
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
        token = tl.load(top_token + (n * depth + depth_of - 1) * K + at, mask=chosen, other=0)
        out = n * size + node
        tl.store(entry_of + out, entry, mask=chosen)
        tl.store(tokens + out, token.to(tl.int64), mask=chosen)
        tl.store(depths + out, depth_of, mask=chosen)
        tl.store(scores + out, own, mask=chosen)
    if tl.program_id(0) == 0:
        tl.store(node_of, 0)
        tl.store(entry_of + n * size, 0)
        tl.store(tokens + n * size, tl.load(root_tokens + n).to(tl.int64))
        tl.store(depths + n * size, 0)
        tl.store(scores + n * size, 0.0)
        tl.store(counts + n, tl.minimum(entries, BUDGET + 1))


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
    depth: tl.tensor,
    NODES: tl.constexpr,
    ROOM: tl.constexpr,
    WORDS: tl.constexpr,
    WORDS_PAD: tl.constexpr,
    EACH: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """EACH nodes of one request: parent, ancestors' bits, first child, next sibling; and the padding of all outputs."""
    follow(PDL)
    n = tl.program_id(1).to(tl.int64)
    parent += n * ROOM
    child += n * ROOM
    node_of += n * ROOM
    entries = tl.load(totals + n * 3)
    node = tl.program_id(0) * EACH + tl.arange(0, EACH)
    live = node < tl.minimum(entries, NODES)
    out = n * NODES + node
    entry = tl.load(entry_of + out, mask=live, other=0)
    below_root = live & (entry > 0)
    up = tl.load(parent + entry, mask=below_root, other=-1)
    tl.store(parents + out, tl.load(node_of + up, mask=below_root, other=-1), mask=node < NODES)
    down = tl.load(child + entry, mask=live, other=-1)
    tl.store(first_child + out, tl.load(node_of + down, mask=live & (down >= 0), other=-1), mask=node < NODES)
    beside = below_root & (entry + 1 < entries)
    beside = beside & (tl.load(parent + entry + 1, mask=beside, other=-2) == up)
    tl.store(next_sibling + out, tl.load(node_of + entry + 1, mask=beside, other=-1), mask=node < NODES)

    word = tl.arange(0, WORDS_PAD)
    one = tl.full([EACH, WORDS_PAD], 1, tl.int64)
    bits = tl.where(live[:, None] & (word == 0)[None, :], one, 0)  # the root
    at = tl.where(below_root, entry, 0)
    for _ in range(depth):
        bit = tl.load(node_of + at, mask=at > 0, other=0)
        here = (at > 0)[:, None] & ((bit >> 6)[:, None] == word[None, :])
        bits |= tl.where(here, one << (bit & 63).to(tl.int64)[:, None], 0)
        at = tl.load(parent + at, mask=at > 0, other=0)
    inside = (node < NODES)[:, None] & (word < WORDS)[None, :]
    tl.store(visibility + out[:, None] * WORDS + word[None, :], bits, mask=inside)

    empty = (node < NODES) & (live == 0)
    none = tl.full([EACH], -1, tl.int32)
    tl.store(tokens + out, none.to(tl.int64), mask=empty)
    tl.store(depths + out, none, mask=empty)
    tl.store(scores + out, none.to(tl.float32), mask=empty)
