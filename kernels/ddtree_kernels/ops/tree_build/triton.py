"""Kernels of tree_build's second half: entries of the tree level by level, their places and links; grow is all in one.

README.md beside this derives them, launch.py launches them. As in triton_rows.py scratch needs no clearing, shapes are
static and counts are read on the device.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ddtree_kernels.ops.pdl import follow
from ddtree_kernels.ops.tree_build.triton_rows import FLOAT32_MAX, floor_of_losses


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
    floor = floor_of_losses(chain, step_counts + at, path_counts + at, depth, BUDGET, DEPTH_PAD, BINS, PER_NAT)
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
