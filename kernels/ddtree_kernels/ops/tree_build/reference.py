"""The specification of tree_build, in plain torch and a heap.

Definitions are those of Ringel and Romano, arXiv 2604.12989, and of `ddtree.py` in liranringel/ddtree; what they leave
open (ties, NaN, infinities) is decided here.
"""

from __future__ import annotations

import ctypes
import heapq
from typing import Any

import torch

from ddtree_kernels.ops.tree_build.tree import DraftTree, words_for

FLOAT32_MAX = torch.finfo(torch.float32).max
Key = tuple[Any, ...]


def clean(logits: torch.Tensor) -> torch.Tensor:
    """float32 logits: NaN counts as -inf, +inf as the largest float32, -0 as +0."""
    values = logits.float()
    return torch.where(values.isnan(), -torch.inf, values).clamp(max=FLOAT32_MAX) + 0.0


def top_log_probs(logits: torch.Tensor, k: int, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """The k best tokens of every position: log-probabilities [N, L, k] float32 and token ids [N, L, k] int64.

    Rank order is (higher logit, lower token id). log p = (z - max z) - log sum exp(z - max z) with z = logit / T,
    over the whole vocabulary; -inf for a token without probability.
    """
    values = clean(logits)
    best, tokens = torch.sort(values, dim=-1, descending=True, stable=True)
    inverse = float(torch.tensor(1.0 / temperature, dtype=torch.float32))
    scaled = (values * inverse).clamp(max=FLOAT32_MAX)
    top = scaled.amax(dim=-1, keepdim=True)
    shift = torch.where(top == -torch.inf, 0.0, top)
    total = (scaled - shift).double().exp().sum(dim=-1, keepdim=True).clamp(min=1.0)
    best_scaled = (best[..., :k] * inverse).clamp(max=FLOAT32_MAX)
    log_probs = ((best_scaled - shift) - total.log().float()).clamp(max=0.0)
    return log_probs, tokens[..., :k]


def rounded(value: float) -> float:
    """To float32; the sum of two float32 numbers rounded so is exactly their float32 sum."""
    return ctypes.c_float(value).value


def best_first(rows: list[list[float]], budget: int, spine: bool) -> list[tuple[int, int, float, int]]:
    """The chosen nodes of one request, in tree order: (parent index, depth, prefix log-probability, rank).

    rows[d][r] is the log-probability of rank r at depth d + 1. The order of prefixes, and so of nodes, is
    (higher log-probability, shallower, lexicographically lower ranks); the tree is the first `budget` of that order, or
    with a spine the argmax chain (as far as it has probability and the budget goes) and then the first of the rest.
    A node's log-probability is the float32 sum of its parent's and its own. Prefixes of -inf never enter.
    """
    heap: list[Key] = []

    def push(parent_score: float, ranks: tuple[int, ...]) -> None:
        depth, rank = len(ranks), ranks[-1]
        if depth <= len(rows) and rank < len(rows[depth - 1]):
            score = rounded(parent_score + rows[depth - 1][rank])
            if score > -torch.inf:
                heapq.heappush(heap, (-score, depth, ranks, parent_score))

    chosen: set[Key] = set()
    if spine:
        score = 0.0
        for depth in range(1, min(len(rows), budget) + 1):
            parent_score, score = score, rounded(score + rows[depth - 1][0])
            if score == -torch.inf:
                break
            chosen.add((-score, depth, (0,) * depth, parent_score))
    push(0.0, (0,))
    while heap and len(chosen) < budget:
        key = heapq.heappop(heap)
        chosen.add(key)  # a node of the spine is there already
        minus_score, _, ranks, parent_score = key
        push(parent_score, (*ranks[:-1], ranks[-1] + 1))
        push(-minus_score, (*ranks, 0))
    index: dict[tuple[int, ...], int] = {(): 0}
    nodes = []
    for minus_score, depth, ranks, _ in sorted(chosen):
        index[ranks] = len(index)
        nodes.append((index[ranks[:-1]], depth, -minus_score, ranks[-1]))
    return nodes


def select(
    log_probs: torch.Tensor, top_tokens: torch.Tensor, root_tokens: torch.Tensor, budget: int, spine: bool = False
) -> DraftTree:
    """The tree of every request from its ranked log-probabilities and tokens, both [N, L, k]."""
    batch, nodes, words = log_probs.shape[0], budget + 1, words_for(budget + 1)
    tokens = [[-1] * nodes for _ in range(batch)]
    parents = [[-1] * nodes for _ in range(batch)]
    depths = [[-1] * nodes for _ in range(batch)]
    scores = [[-1.0] * nodes for _ in range(batch)]
    first_child = [[-1] * nodes for _ in range(batch)]
    next_sibling = [[-1] * nodes for _ in range(batch)]
    visibility = [[[0] * words for _ in range(nodes)] for _ in range(batch)]
    counts = []
    for n, (rows, ids, root) in enumerate(
        zip(log_probs.tolist(), top_tokens.tolist(), root_tokens.tolist(), strict=True)
    ):
        tokens[n][0], depths[n][0], scores[n][0] = root, 0, 0.0
        visible = [1]
        last_child: dict[int, int] = {}
        for node, (parent, depth, score, rank) in enumerate(best_first(rows, budget, spine), start=1):
            tokens[n][node], parents[n][node] = ids[depth - 1][rank], parent
            depths[n][node], scores[n][node] = depth, score
            visible.append(visible[parent] | 1 << node)
            if parent in last_child:
                next_sibling[n][last_child[parent]] = node
            else:
                first_child[n][parent] = node
            last_child[parent] = node
        for node, bits in enumerate(visible):
            visibility[n][node] = [signed(bits >> 64 * word) for word in range(words)]
        counts.append(len(visible))
    device = log_probs.device

    def integers(values: object, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    return DraftTree(
        tokens=integers(tokens, torch.int64),
        parents=integers(parents),
        depths=integers(depths),
        log_probs=torch.tensor(scores, dtype=torch.float32, device=device),
        counts=integers(counts),
        visibility=integers(visibility, torch.int64),
        first_child=integers(first_child),
        next_sibling=integers(next_sibling),
    )


def signed(word: int) -> int:
    """The low 64 bits as the int64 that holds them."""
    word &= (1 << 64) - 1
    return word - (1 << 64) if word >> 63 else word


def tree_build(
    draft_logits: torch.Tensor,
    root_tokens: torch.Tensor,
    budget: int,
    top_k: int | None = None,
    spine: bool = False,
    temperature: float = 1.0,
) -> DraftTree:
    """As the public function of this name, arguments unchecked."""
    k = min(budget, draft_logits.shape[-1], top_k or budget)
    log_probs, top_tokens = top_log_probs(draft_logits, k, temperature)
    return select(log_probs, top_tokens, root_tokens, budget, spine)
