"""The draft tree of one request, on the CPU: the spine first, then best-first. Standard library only.

Definitions are those of Ringel and Romano (arXiv 2604.12989). Node 0 is the root (the bonus token), nodes 1..L are the
chain of each position's best token, and only then come the other prefixes by falling probability. So the first L + 1
rows of a verify pass are stock DFLASH's own, and no tree accepts less than the chain.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Nodes:
    """tokens, parents: one entry a node, root first; a parent's index is below its children's, the root's is -1."""

    tokens: Sequence[int]
    parents: Sequence[int]

    @property
    def width(self) -> int:
        """Nodes, the root included."""
        return len(self.tokens)


@dataclass(frozen=True)
class Tree(Nodes):
    """depths: one a node, the root's is 0. bits: one integer a node; bit j is set where node j is this node or one of
    its ancestors."""

    depths: tuple[int, ...]
    bits: tuple[int, ...]


def capacity(depth: int, ranks: int, enough: int) -> int:
    """Nodes besides the root that a tree of this depth can have with `ranks` tokens a position; stops at `enough`."""
    total, layer = 0, 1
    for _ in range(depth):
        layer *= ranks
        total += layer
        if total >= enough:
            return enough
    return total


def grow(root: int, log_probs: Sequence[Sequence[float]], ids: Sequence[Sequence[int]], budget: int) -> Tree:
    """The tree of exactly `budget` nodes besides the root.

    log_probs, ids: [L][K], of each position its K best tokens, falling. A NaN counts as the lowest. ValueError where
    the budget is below L or above what L positions of K tokens can hold.
    """
    depth = len(log_probs)
    ranks = min((len(row) for row in log_probs), default=0)
    if not 0 < depth <= budget:
        raise ValueError(f"budget {budget} cannot hold the chain of {depth} drafted tokens")
    if capacity(depth, ranks, budget) < budget:
        raise ValueError(f"budget {budget} is more than {depth} positions of {ranks} tokens can hold")
    tokens, parents, depths, bits, scores = [root], [-1], [0], [1], [0.0]

    def add(parent: int, score: float, rank: int) -> int:
        node, below = len(tokens), depths[parent] + 1
        tokens.append(ids[below - 1][rank])
        parents.append(parent)
        depths.append(below)
        bits.append(bits[parent] | 1 << node)
        scores.append(score)
        return node

    heap: list[tuple[float, int, int]] = []

    def offer(parent: int, rank: int) -> None:
        below = depths[parent]
        if below < depth and rank < len(log_probs[below]):
            score = scores[parent] + log_probs[below][rank]
            heapq.heappush(heap, (-score if score == score else float("inf"), parent, rank))

    for position in range(depth):
        add(position, scores[position] + log_probs[position][0], 0)
    for position in range(depth):
        offer(position, 1)
    while len(tokens) <= budget:
        minus, parent, rank = heapq.heappop(heap)
        node = add(parent, -minus, rank)
        offer(parent, rank + 1)
        offer(node, 0)
    return Tree(tuple(tokens), tuple(parents), tuple(depths), tuple(bits))
