"""A small tree by popping: one warp a request takes the best prefix that is left, one after the other.

README.md beside this derives it. One launch without host synchronisation, after the rows' tokens are ranked.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ddtree_kernels.ops.pdl import follow

NOTHING = tl.constexpr(0x7FFFFFFF)
NEVER = tl.constexpr(0x7F800000)
"""Loss of a prefix of score -inf."""


@triton.jit
def _loss(score: tl.tensor) -> tl.tensor:
    """int32 that rises as the score falls; scores are at most 0."""
    return (0.0 - score).to(tl.int32, bitcast=True)


@triton.jit
def _of_taken(
    taken: tl.tensor, place: tl.tensor, below: tl.tensor, family: tl.tensor, code: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """The values at the one lane that is taken."""
    return (
        tl.sum(tl.where(taken, place, 0), axis=0),
        tl.sum(tl.where(taken, below, 0), axis=0),
        tl.sum(tl.where(taken, family, 0), axis=0),
        tl.sum(tl.where(taken, code, 0), axis=0),
    )


@triton.jit
def pop_kernel(
    log_probs: tl.tensor,
    lengths: tl.tensor,
    top_token: tl.tensor,
    root_tokens: tl.tensor,
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
    SLOTS: tl.constexpr,
    CHUNK: tl.constexpr,
    DOUBLINGS: tl.constexpr,
    WORDS: tl.constexpr,
    WHOLE: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """One request's tree, to be launched with one warp: a reduction is then a single instruction.

    Slot j stands for the best child of node j that is not in the tree yet. A pop takes the slot that loses least, moves
    it on to the next sibling and opens the slot of the new node; the popped are in the tree's order. What a later
    pop needs is loaded one pop ahead, so that only reductions follow each other.

    Equal losses are rare: then the shallower, then the lower code of the ranks goes first. A rank r adds n ones, a zero
    and the n low bits of r + 1, n = floor(log2(r + 1)): no code begins another, and codes order like ranks.
    A node's ranks have a product of (r + 1) of at most BUDGET, so depth + 2 * log2(BUDGET) bits are enough, 31 at most.
    """
    follow(PDL)
    n = tl.program_id(0).to(tl.int64)
    log_probs += n * depth * K
    lengths += n * depth
    top_token += n * depth * K
    out = n * (BUDGET + 1)
    lane = tl.arange(0, SLOTS)
    node = lane + 1
    inside = lane < BUDGET
    none = tl.full([SLOTS], -1, tl.int32)
    tl.store(first_child + out, -1)
    tl.store(next_sibling + out, -1)
    tl.store(first_child + out + node, none, mask=inside)
    tl.store(next_sibling + out + node, none, mask=inside)
    # the whole table is read at once, which brings it near: the reads below then are short; not WHOLE: places beyond a
    # row's tokens were not written, and get -inf here
    best = tl.full([CHUNK], float("-inf"), tl.float32)
    for begin in range(0, depth * K, CHUNK):
        at = begin + tl.arange(0, CHUNK)
        real = at < depth * K
        if not WHOLE:
            beyond = real & (at % K >= tl.load(lengths + at // K, mask=real, other=K))
            tl.store(log_probs + at, tl.full([CHUNK], float("-inf"), tl.float32), mask=beyond)
            real = real & (beyond == 0)
        best = tl.maximum(best, tl.load(log_probs + at, mask=real, other=float("-inf")))
    if not WHOLE:
        tl.debug_barrier()
    some = tl.min(_loss(best), axis=0) < NEVER

    root = lane == 0
    loss = tl.where(root, _loss(tl.load(log_probs)), NOTHING)  # of the slot's prefix
    score = tl.zeros([SLOTS], tl.float32)  # of the slot's node
    following = tl.where(root, tl.load(log_probs + 1, mask=K > 1, other=float("-inf")), float("-inf"))  # next sibling
    first = tl.load(log_probs + K, mask=depth > 1, other=float("-inf")).to(tl.int32, bitcast=True)
    below = tl.where(root, first, 0)  # bits of the best log-probability one level below the slot's prefix
    place = tl.zeros([SLOTS], tl.int32)  # rank of the slot's prefix, its row << 8, bits of the node's code << 16
    last = tl.zeros([SLOTS], tl.int32)  # the node's last child, 0 = none
    code = tl.zeros([SLOTS], tl.int32)
    popped = tl.zeros([SLOTS], tl.int32)  # of node lane + 1: parent, last child before << 8, rank << 17, row << 25
    made = tl.zeros([SLOTS], tl.float32)
    nodes = tl.full([], 1, tl.int32)
    least = tl.min(loss, axis=0)
    while (nodes <= BUDGET) & (least < NEVER) & some:
        taken = loss == least
        many = tl.sum(taken.to(tl.int32), axis=0)
        own, step, family, prefix = _of_taken(taken, place, below, lane | (last << 8), code)
        if many > 1:
            row = (place >> 8) & 255
            taken = taken & (row == tl.min(tl.where(taken, row, 255), axis=0))
            taken = taken & (code == tl.min(tl.where(taken, code, NOTHING), axis=0))
            own, step, family, prefix = _of_taken(taken, place, below, lane | (last << 8), code)
        value = 0.0 - least.to(tl.float32, bitcast=True)
        rank = own & 255
        row = (own >> 8) & 255
        used = own >> 16

        at = log_probs + row * K
        sibling = tl.load(at + rank + 2, mask=rank + 2 < K, other=float("-inf"))
        child = tl.load(at + K + 1, mask=(row + 1 < depth) & (K > 1), other=float("-inf"))
        grandchild = tl.load(at + 2 * K, mask=row + 2 < depth, other=float("-inf"))
        new = lane == nodes
        loss = tl.where(taken, _loss(score + following), loss)
        loss = tl.where(new, _loss(value + step.to(tl.float32, bitcast=True)), loss)
        least = tl.min(loss, axis=0)

        log = (((rank + 1).to(tl.float32).to(tl.int32, bitcast=True)) >> 23) - 127
        length = 2 * log + 1
        # n ones and a zero, then r + 1 without its highest bit
        word = (((1 << log) - 1) << (log + 1)) | ((rank + 1) ^ (1 << log))
        score = tl.where(new, value, score)
        following = tl.where(new, child, tl.where(taken, sibling, following))
        below = tl.where(new, grandchild.to(tl.int32, bitcast=True), below)
        place = tl.where(new, ((row + 1) << 8) | ((used + length) << 16), place + taken.to(tl.int32))
        last = tl.where(taken, nodes, last)
        code = tl.where(new, prefix | (word << (31 - used - length)), code)
        here = node == nodes
        popped = tl.where(here, family | (rank << 17) | (row << 25), popped)
        made = tl.where(here, value, made)
        nodes += 1

    live = node < nodes
    up = popped & 255
    before = (popped >> 8) & 511
    row = popped >> 25
    token = tl.load(top_token + row * K + ((popped >> 17) & 255), mask=live, other=-1)
    tl.store(tokens + out + node, token.to(tl.int64), mask=inside)
    tl.store(parents + out + node, tl.where(live, up, -1), mask=inside)
    tl.store(depths + out + node, tl.where(live, row + 1, -1), mask=inside)
    tl.store(scores + out + node, tl.where(live, made, -1.0), mask=inside)
    tl.store(tokens + out, tl.load(root_tokens + n).to(tl.int64))
    tl.store(parents + out, -1)
    tl.store(depths + out, 0)
    tl.store(scores + out, 0.0)
    tl.store(counts + n, nodes)
    # every level, the ancestors known double
    one = tl.full([SLOTS], 1, tl.int64)
    for word_at in tl.static_range(WORDS):
        bits = tl.where(live & ((node >> 6) == word_at), one << (node & 63).to(tl.int64), 0)
        if word_at == 0:
            bits = bits | tl.where(live, one, 0)
        above = up
        for _ in tl.static_range(DOUBLINGS):
            there = tl.maximum(above - 1, 0)
            bits = bits | tl.where(above > 0, tl.gather(bits, there, axis=0), 0)
            above = tl.where(above > 0, tl.gather(above, there, axis=0), 0)
        tl.store(visibility + (out + node) * WORDS + word_at, bits, mask=inside)
        tl.store(visibility + out * WORDS + word_at, tl.full([], 1 if word_at == 0 else 0, tl.int64))
    tl.debug_barrier()
    tl.store(first_child + out + up, node, mask=live & (before == 0))
    tl.store(next_sibling + out + before, node, mask=live & (before > 0))
