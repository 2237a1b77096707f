"""Kernels of tree_build: group maxima, exact top-k of a row, selection of the tree, links and visibility.

README.md beside this derives them. Every kernel is one launch without host synchronisation; scratch needs no clearing,
because only written entries are read. Shapes are static, counts are read on the device.
"""

from __future__ import annotations

import triton
import triton.language as tl

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
    part_max: tl.tensor,
    part_sum: tl.tensor,
    stride_n: tl.tensor,
    stride_l: tl.tensor,
    depth: tl.tensor,
    vocab: tl.tensor,
    groups: tl.tensor,
    inverse_temperature: tl.tensor,
    GROUP: tl.constexpr,
    GROUPS_EACH: tl.constexpr,
) -> None:
    """One pass over the logits: the maximum of every group of GROUP tokens, and max and sum of exp of each split."""
    row = tl.program_id(1).to(tl.int64)
    split = tl.program_id(0)
    base = logits + (row // depth) * stride_n + (row % depth) * stride_l
    group = split * GROUPS_EACH + tl.arange(0, GROUPS_EACH)
    token = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = _clean(tl.load(base + token, mask=token < vocab, other=float("-inf")))
    best = tl.max(x, axis=1)
    tl.store(group_best + row * groups + group, best, mask=group < groups)
    z = tl.minimum(x * inverse_temperature, FLOAT32_MAX)
    top = tl.minimum(tl.max(best, axis=0) * inverse_temperature, FLOAT32_MAX)
    shift = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(tl.sum(tl.exp(z - shift), axis=1), axis=0)
    at = row * tl.num_programs(0) + split
    tl.store(part_max + at, top)
    tl.store(part_sum + at, total)


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
def row_top_kernel(
    logits: tl.tensor,
    group_best: tl.tensor,
    part_max: tl.tensor,
    part_sum: tl.tensor,
    group_list: tl.tensor,
    found_key: tl.tensor,
    found_token: tl.tensor,
    top_log_prob: tl.tensor,
    top_token: tl.tensor,
    stride_n: tl.tensor,
    stride_l: tl.tensor,
    depth: tl.tensor,
    vocab: tl.tensor,
    groups: tl.tensor,
    splits: tl.tensor,
    inverse_temperature: tl.tensor,
    K: tl.constexpr,
    K_GROUPS: tl.constexpr,
    K_PAD: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS_PAD: tl.constexpr,
    SPLITS_PAD: tl.constexpr,
    SHIFT: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    """One row: its K best tokens in rank order with their log-probabilities.

    The K best tokens lie in the K groups with the best maxima, so only those are read again.
    """
    BITS: tl.constexpr = 32 - SHIFT
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, SPLITS_PAD)
    tops = tl.load(part_max + row * splits + part, mask=part < splits, other=float("-inf"))
    sums = tl.load(part_sum + row * splits + part, mask=part < splits, other=0.0)
    top = tl.max(tops, axis=0)
    shift = tl.where(top == float("-inf"), 0.0, top)
    log_total = tl.log(tl.maximum(tl.sum(sums * tl.exp(tops - shift), axis=0), 1.0))

    group = tl.arange(0, GROUPS_PAD)
    best = tl.load(group_best + row * groups + group, mask=group < groups, other=0.0)
    lowest: tl.constexpr = -(1 << (BITS - 1))
    best_key = tl.where(group < groups, _key(best, SHIFT), lowest)
    place = _places(best_key, K_GROUPS, BITS, WIDE)
    tl.store(group_list + row * K_PAD + place, group, mask=place >= 0)
    tl.debug_barrier()

    base = logits + (row // depth) * stride_n + (row % depth) * stride_l
    slot = tl.arange(0, K_PAD)
    member = tl.load(group_list + row * K_PAD + slot, mask=slot < K_GROUPS, other=0)
    token = member[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    real = (slot[:, None] < K_GROUPS) & (token < vocab)
    x = _clean(tl.load(base + token, mask=real, other=float("-inf")))
    key = tl.reshape(tl.where(real, _key(x, SHIFT), lowest), [K_PAD * GROUP])
    place = _places(key, K, BITS, WIDE)
    tl.store(found_key + row * K_PAD + place, key, mask=place >= 0)
    tl.store(found_token + row * K_PAD + place, tl.reshape(token, [K_PAD * GROUP]), mask=place >= 0)
    tl.debug_barrier()

    # rank order: higher logit, then lower token
    key = tl.load(found_key + row * K_PAD + slot, mask=slot < K, other=0)
    token = tl.load(found_token + row * K_PAD + slot, mask=slot < K, other=0)
    both = ((~key).to(tl.int64) << 32) | token.to(tl.int64)
    both = tl.sort(tl.where(slot < K, both, HIGHEST64))
    x = _value(~((both >> 32).to(tl.int32)), SHIFT)
    z = tl.minimum(x * inverse_temperature, FLOAT32_MAX)
    log_prob = tl.minimum((z - shift) - log_total, 0.0)
    tl.store(top_log_prob + row * K + slot, log_prob, mask=slot < K)
    tl.store(top_token + row * K + slot, (both & 0xFFFFFFFF).to(tl.int32), mask=slot < K)


@triton.jit
def _how_many(
    add: tl.tensor, row: tl.tensor, floor: tl.tensor, low: tl.tensor, high: tl.tensor, STRICT: tl.constexpr, STEPS: tl.constexpr
) -> tl.tensor:
    """For each lane the end of the run of j in [low, high) with add + row[j] > floor (>= unless STRICT); row falls."""
    for _ in range(STEPS):
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
def _how_many_ends(ends: tl.tensor, slot: tl.tensor, high: tl.tensor, STEPS: tl.constexpr) -> tl.tensor:
    """For each slot the number of running ends that are at or below it: the row it lies in."""
    low = tl.zeros_like(slot)
    for _ in range(STEPS):
        middle = (low + high) >> 1
        alive = low < high
        end = tl.load(ends + middle, mask=alive, other=0)
        high = tl.where(alive & (end > slot), middle, high)
        low = tl.where(alive & (end <= slot), middle + 1, low)
    return low


@triton.jit
def _first_floor(
    log_probs: tl.tensor,
    depth: tl.tensor,
    K: tl.constexpr,
    BUDGET: tl.constexpr,
    DEPTH_PAD: tl.constexpr,
    WAYS: tl.constexpr,
    STEPS: tl.constexpr,
) -> tl.tensor:
    """A score that at least BUDGET prefixes surely exceed: -inf, or found among chains with one deviation.

    The prefixes looked at follow the argmax chain but for at most one position, so their scores are sums of two terms
    and each (deviation, end) is one sorted list. Three rounds of WAYS thresholds over [-64, 0].
    """
    level = tl.arange(0, DEPTH_PAD)
    step = tl.load(log_probs + level * K, mask=level < depth, other=0.0)
    upto = tl.cumsum(step, axis=0)
    pair = tl.arange(0, DEPTH_PAD * DEPTH_PAD)
    out = pair // DEPTH_PAD
    end = pair % DEPTH_PAD
    # base = chain to the end, less the chain's own token at the deviation
    chain = tl.reshape(tl.broadcast_to(upto[None, :], [DEPTH_PAD, DEPTH_PAD]), [DEPTH_PAD * DEPTH_PAD])
    own = tl.reshape(tl.broadcast_to(step[:, None], [DEPTH_PAD, DEPTH_PAD]), [DEPTH_PAD * DEPTH_PAD])
    base = chain - own
    real = (out <= end) & (end < depth)
    way = tl.arange(0, WAYS)
    far = 0.0
    width = 64.0
    enough = 1
    for _ in range(3):
        width = width / WAYS
        floor = far - width * (way + 1).to(tl.float32)
        zero = tl.zeros([DEPTH_PAD * DEPTH_PAD, WAYS], tl.int32)
        # the chain itself is counted once, as deviation 0 of rank 0
        low = zero + tl.where(out == 0, 0, 1)[:, None]
        high = tl.where(real[:, None], zero + K, low)
        run = _how_many(
            base[:, None], log_probs + out[:, None] * K, floor[None, :], low, tl.maximum(high, low), False, STEPS
        )
        many = tl.sum(run - low, axis=0)
        missed = tl.sum((many < BUDGET).to(tl.int32), axis=0)
        enough = tl.where(missed < WAYS, enough, 0)
        far = far - width * missed.to(tl.float32)
    floor = far - width
    # sums were taken in another order than the tree's
    floor = floor - 1e-3 - 1e-5 * tl.abs(floor)
    return tl.where(enough > 0, floor, float("-inf"))


@triton.jit
def _sorted_level(
    score_in: tl.tensor,
    log_probs: tl.tensor,
    ends: tl.tensor,
    score_out: tl.tensor,
    origin_out: tl.tensor,
    rows: tl.tensor,
    total: tl.tensor,
    SIZE: tl.constexpr,
    STEPS: tl.constexpr,
) -> None:
    """Writes the level's `total` candidates in order: higher score, then earlier parent, then lower rank."""
    slot = tl.arange(0, SIZE)
    live = slot < total
    parent = _how_many_ends(ends, slot, tl.where(live, rows, 0), STEPS)
    start = tl.load(ends + parent - 1, mask=live & (parent > 0), other=0)
    rank = slot - start
    score = tl.load(score_in + parent, mask=live, other=0.0) + tl.load(log_probs + rank, mask=live, other=0.0)
    # scores are <= 0: the bits of -score rise as the score falls
    falling = tl.abs(score).to(tl.int32, bitcast=True).to(tl.int64)
    both = tl.where(live, (falling << 32) | (parent << 10 | rank).to(tl.int64), HIGHEST64)
    both = tl.sort(both)
    score = -((both >> 32).to(tl.int32).to(tl.float32, bitcast=True))
    tl.store(score_out + slot, score, mask=live)
    tl.store(origin_out + slot, (both & 0xFFFFFFFF).to(tl.int32), mask=live)


@triton.jit
def select_kernel(
    log_probs: tl.tensor,
    top_token: tl.tensor,
    root_tokens: tl.tensor,
    tokens: tl.tensor,
    parents: tl.tensor,
    depths: tl.tensor,
    scores: tl.tensor,
    counts: tl.tensor,
    level_score: tl.tensor,
    level_origin: tl.tensor,
    level_node: tl.tensor,
    ends: tl.tensor,
    best_score: tl.tensor,
    best_id: tl.tensor,
    depth: tl.tensor,
    K: tl.constexpr,
    BUDGET: tl.constexpr,
    PAD: tl.constexpr,
    SMALL: tl.constexpr,
    DEPTH_PAD: tl.constexpr,
    WAYS: tl.constexpr,
    STEPS: tl.constexpr,
    SPINE: tl.constexpr,
) -> None:
    """One request: levels from shallow to deep, each sorted, each merged into the list of the BUDGET best so far."""
    n = tl.program_id(0).to(tl.int64)
    log_probs += n * depth * K
    top_token += n * depth * K
    level_score += n * (depth + 1) * PAD
    level_origin += n * (depth + 1) * PAD
    level_node += n * (depth + 1) * PAD
    ends += n * PAD
    best_score += n * 2 * PAD
    best_id += n * 2 * PAD
    lane = tl.arange(0, PAD)

    floor = tl.full([], float("-inf"), tl.float32)
    if DEPTH_PAD <= 32:
        floor = _first_floor(log_probs, depth, K, BUDGET, DEPTH_PAD, WAYS, STEPS)
    listed = tl.full([], 0, tl.int32)
    chained = tl.full([], 0, tl.int32)
    if SPINE:
        # the chain sits at the list's front for good, under a score above all others
        along = tl.full([], 0.0, tl.float32)
        for d in range(0, depth):
            along += tl.load(log_probs + d * K)
            chained += ((along > float("-inf")) & (d < BUDGET)).to(tl.int32)
        tl.store(best_score + lane, tl.full([PAD], 1.0, tl.float32), mask=lane < chained)
        tl.store(best_id + lane, lane * PAD, mask=lane < chained)
        listed = chained
        if chained == BUDGET:
            floor = tl.full([], 1.0, tl.float32)
    tl.store(level_score + lane, tl.zeros([PAD], tl.float32), mask=lane < 1)
    tl.debug_barrier()

    level = tl.full([], 0, tl.int32)
    rows = tl.full([], 1, tl.int32)
    side = tl.full([], 0, tl.int32)
    while (level < depth) & (rows > 0):
        row = log_probs + level * K
        above = level_score + level * PAD
        below = above + PAD
        origin = level_origin + (level + 1) * PAD
        have = lane < rows
        own = tl.load(above + lane, mask=have, other=0.0)
        zero = tl.zeros([PAD], tl.int32)
        # (i + 1)(j + 1) <= BUDGET: all that come before (i, j) are at least as good
        most = tl.where(have, tl.minimum(BUDGET // (lane + 1), K), 0)
        run = _how_many(own, row, floor, zero, most, True, STEPS)
        forced = tl.full([], 0, tl.int32)
        if SPINE:
            forced = (level < chained).to(tl.int32)
            run = tl.maximum(run, tl.where(lane == 0, forced, 0))
        total = tl.sum(run, axis=0)
        if total > PAD:
            # too many: find the score of the BUDGET-th, keep what is above it and of its equals the first
            bits = tl.full([], 0, tl.int32)
            step = tl.full([], 1 << 30, tl.int32)
            for _ in range(31):
                nearer = bits + step - 1
                cut = -(nearer.to(tl.float32, bitcast=True))
                cut = tl.where(nearer > 0x7F7FFFFF, float("-inf"), cut)
                count = tl.sum(_how_many(own, row, cut, zero, run, False, STEPS), axis=0)
                bits = tl.where(count >= BUDGET, bits, bits + step)
                step = step >> 1
            cut = -(bits.to(tl.float32, bitcast=True))
            better = _how_many(own, row, cut, zero, run, True, STEPS)
            equal = _how_many(own, row, cut, better, run, False, STEPS) - better
            room = BUDGET - tl.sum(better, axis=0)
            before = tl.cumsum(equal, axis=0) - equal
            run = better + tl.minimum(equal, tl.maximum(room - before, 0))
            total = tl.sum(run, axis=0)
        tl.store(ends + lane, tl.cumsum(run, axis=0), mask=have)
        tl.debug_barrier()
        if SMALL < PAD:
            if total <= SMALL:
                _sorted_level(above, row, ends, below, origin, rows, total, SMALL, STEPS)
            else:
                _sorted_level(above, row, ends, below, origin, rows, total, PAD, STEPS)
        else:
            _sorted_level(above, row, ends, below, origin, rows, total, PAD, STEPS)
        tl.debug_barrier()

        # merge; what was listed before is shallower and wins ties
        total = tl.minimum(total, BUDGET)
        old_score = best_score + side * PAD
        old_id = best_id + side * PAD
        new_score = best_score + (1 - side) * PAD
        new_id = best_id + (1 - side) * PAD
        mine = lane < total
        score = tl.load(below + lane, mask=mine, other=0.0)
        ahead = _how_many(zero.to(tl.float32), old_score, score, zero, tl.where(mine, listed, 0), False, STEPS)
        place = lane - forced + ahead
        keep = mine & (lane >= forced) & (place < BUDGET)
        tl.store(new_score + place, score, mask=keep)
        tl.store(new_id + place, level * PAD + lane, mask=keep)
        old = lane < listed
        was = tl.load(old_score + lane, mask=old, other=0.0)
        was_id = tl.load(old_id + lane, mask=old, other=0)
        run = _how_many(
            zero.to(tl.float32), below, was, zero + forced, tl.where(old, total, forced), True, STEPS
        )
        place = lane + run - forced
        stay = old & (place < BUDGET)
        tl.store(new_score + place, was, mask=stay)
        tl.store(new_id + place, was_id, mask=stay)
        rows = forced + tl.sum(keep.to(tl.int32), axis=0)
        listed = tl.minimum(listed + total - forced, BUDGET)
        side = 1 - side
        tl.debug_barrier()
        if listed == BUDGET:
            floor = tl.maximum(floor, tl.load(new_score + BUDGET - 1))
        level += 1

    best_score += side * PAD
    best_id += side * PAD
    live = lane < listed
    node_id = tl.load(best_id + lane, mask=live, other=0)
    node_level = node_id // PAD
    score = tl.load(level_score + node_id + PAD, mask=live, other=0.0)
    place = lane
    if SPINE:
        # the chain's nodes take their places among the rest
        rest = live & (lane >= chained)
        place = tl.where(rest, lane - chained, 0)
        for d in range(0, chained):
            link = tl.load(level_score + (d + 1) * PAD)
            first = (link > score) | ((link == score) & (d <= node_level))
            place += (rest & first).to(tl.int32)
            place += tl.where(lane == d, d + tl.sum((rest & (first == 0)).to(tl.int32), axis=0), 0)
    node = place + 1
    tl.store(level_node + node_id, node, mask=live)
    tl.debug_barrier()
    come = tl.load(level_origin + node_id + PAD, mask=live, other=0)
    parent = tl.load(level_node + (node_level - 1) * PAD + (come >> 10), mask=live & (node_level > 0), other=0)
    token = tl.load(top_token + node_level * K + (come & 1023), mask=live, other=0)
    size: tl.constexpr = BUDGET + 1
    out = n * size
    tl.store(tokens + out + node, token.to(tl.int64), mask=live)
    tl.store(parents + out + node, parent, mask=live)
    tl.store(depths + out + node, node_level + 1, mask=live)
    tl.store(scores + out + node, score, mask=live)
    empty = (lane >= listed) & (lane < BUDGET)
    tl.store(tokens + out + 1 + lane, tl.full([PAD], -1, tl.int64), mask=empty)
    tl.store(parents + out + 1 + lane, tl.full([PAD], -1, tl.int32), mask=empty)
    tl.store(depths + out + 1 + lane, tl.full([PAD], -1, tl.int32), mask=empty)
    tl.store(scores + out + 1 + lane, tl.full([PAD], -1.0, tl.float32), mask=empty)
    tl.store(tokens + out, tl.load(root_tokens + n).to(tl.int64))
    tl.store(parents + out, -1)
    tl.store(depths + out, 0)
    tl.store(scores + out, 0.0)
    tl.store(counts + n, listed + 1)




@triton.jit
def links_kernel(
    parents: tl.tensor,
    counts: tl.tensor,
    visibility: tl.tensor,
    first_child: tl.tensor,
    next_sibling: tl.tensor,
    depth: tl.tensor,
    NODES: tl.constexpr,
    WORDS: tl.constexpr,
    WORDS_PAD: tl.constexpr,
    EACH: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    """EACH nodes of one request: the bits of their ancestors, their first child and their next sibling."""
    n = tl.program_id(1).to(tl.int64)
    parents += n * NODES
    count = tl.load(counts + n)
    node = tl.program_id(0) * EACH + tl.arange(0, EACH)
    live = node < count
    parent = tl.load(parents + node, mask=live, other=-1)
    word = tl.arange(0, WORDS_PAD)
    one = tl.full([EACH, WORDS_PAD], 1, tl.int64)
    bits = tl.zeros([EACH, WORDS_PAD], tl.int64)
    at = tl.where(live, node, -1)
    for _ in range(0, depth + 1):
        here = (at >= 0)[:, None] & ((at >> 6)[:, None] == word[None, :])
        bits |= tl.where(here, one << (at & 63).to(tl.int64)[:, None], 0)
        at = tl.load(parents + at, mask=at >= 0, other=-1)
    inside = (node < NODES)[:, None] & (word < WORDS)[None, :]
    tl.store(visibility + (n * NODES + node)[:, None] * WORDS + word[None, :], bits, mask=inside)

    child = tl.full([EACH], NODES, tl.int32)
    sibling = tl.full([EACH], NODES, tl.int32)
    for start in range(0, count, CHUNK):
        other = start + tl.arange(0, CHUNK)
        theirs = tl.load(parents + other, mask=other < count, other=-2)
        mine = theirs[None, :] == node[:, None]
        child = tl.minimum(child, tl.min(tl.where(mine, other[None, :], NODES), axis=1))
        after = (theirs[None, :] == parent[:, None]) & (other[None, :] > node[:, None])
        sibling = tl.minimum(sibling, tl.min(tl.where(after, other[None, :], NODES), axis=1))
    child = tl.where(live & (child < NODES), child, -1)
    sibling = tl.where(live & (sibling < NODES), sibling, -1)
    tl.store(first_child + n * NODES + node, child, mask=node < NODES)
    tl.store(next_sibling + n * NODES + node, sibling, mask=node < NODES)
