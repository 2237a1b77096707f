"""The draft trees of a batch on the GPU, in one launch: spine first, then best-first, with their mask. Needs triton.

The same trees as `tree.grow`, up to float32 sums of log-probabilities. One warp a request: a node's candidate is its
next child that is not in the tree, so that every step takes the best of at most 64 values held in registers.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _clean(log_prob: tl.tensor, LOWEST: tl.constexpr) -> tl.tensor:
    """NaN counts as the lowest."""
    return tl.where(log_prob == log_prob, tl.maximum(log_prob, LOWEST), LOWEST)


# one compilation for all batches: their bonus tokens lie anywhere in a larger tensor
@triton.jit(do_not_specialize=["count"], do_not_specialize_on_alignment=["bonus", "prefix"])
def grow_kernel(
    log_probs: tl.tensor,
    ids: tl.tensor,
    first: tl.tensor,
    bonus: tl.tensor,
    prefix: tl.tensor,
    positions: tl.tensor,
    told: tl.tensor,
    mask: tl.tensor,
    count: tl.tensor,
    L: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    NODES: tl.constexpr,
    REQUESTS: tl.constexpr,
    RANKS: tl.constexpr,
    LOWEST: tl.constexpr,
) -> None:
    """log_probs, ids: [count * L, K]; first: [count * L]; bonus, prefix: [count]. Writes positions [count * N] int64,
    told [2, count, N] int64 (tokens, parents) and the last N columns of the flat mask, uint8. NODES, REQUESTS, RANKS:
    powers of two that hold N, count and K + 1."""
    request = tl.program_id(0).to(tl.int64)
    log_probs += request * L * K
    ids += request * L * K
    first += request * L
    node = tl.arange(0, NODES)
    below = (node >= 1) & (node <= L)
    score = tl.cumsum(_clean(tl.load(log_probs + (node - 1) * K, mask=below, other=0.0), LOWEST), 0)
    token = tl.load(first + (node - 1), mask=below, other=0)
    token = tl.where(node == 0, tl.load(bonus + request), token)
    inside = node <= L
    parent = tl.where(inside, node - 1, 0)
    depth = tl.where(inside, node, 0)
    one = tl.full((NODES,), 1, tl.int64)
    bits = tl.where(inside, (one << node) | ((one << node) - 1), 0)
    # the candidate of a spine node is its second best: the best is the next spine node
    rank = tl.where(node < L, 1, 0)
    has = (node < L) & (K > 1)
    nothing = -float("inf")
    second = _clean(tl.load(log_probs + node * K + 1, mask=has, other=0.0), LOWEST)
    candidate = tl.where(has, score + second, nothing)
    for made in range(L + 1, N):
        best, at = tl.max(candidate, 0, return_indices=True, return_indices_tie_break_left=True)
        chosen = node == at
        both = tl.sum(tl.where(chosen, depth * RANKS + rank, 0), 0)
        above = tl.sum(tl.where(chosen, bits, 0), 0)
        where = both // RANKS
        place = both % RANKS
        row = where * K
        spine = tl.load(first + where)
        name = tl.load(ids + row + place)
        name = tl.where(name == spine, tl.load(ids + row), name)
        name = tl.where(place == 0, spine, name)
        new = node == made
        token = tl.where(new, name, token)
        parent = tl.where(new, at, parent)
        depth = tl.where(new, where + 1, depth)
        bits = tl.where(new, above | (one << node), bits)
        score = tl.where(new, best, score)
        rank = tl.where(chosen, place + 1, rank)
        more = place + 1 < K
        sibling = _clean(tl.load(log_probs + row + place + 1, mask=more, other=0.0), LOWEST)
        candidate = tl.where(chosen, tl.where(more, score + sibling, nothing), candidate)
        deeper = where + 1 < L
        child = _clean(tl.load(log_probs + row + K, mask=deeper, other=0.0), LOWEST)
        candidate = tl.where(new, tl.where(deeper, score + child, nothing), candidate)
    real = node < N
    own = tl.load(prefix + request).to(tl.int64)
    tl.store(positions + request * N + node, own + depth, mask=real)
    tl.store(told + request * N + node, token, mask=real)
    tl.store(told + (count + request) * N + node, parent.to(tl.int64), mask=real)
    others = tl.arange(0, REQUESTS)
    before = tl.load(prefix + others, mask=others < request, other=0).to(tl.int64) + N
    start = tl.sum(tl.where(others < request, before, 0), 0) * N
    to = mask + start + node[:, None].to(tl.int64) * (own + N) + own + node[None, :]
    seen = (bits[:, None] >> node[None, :].to(tl.int64)) & 1
    tl.store(to, seen.to(tl.uint8), mask=real[:, None] & real[None, :])
