"""The tree's two steps around the models on a CPU, where the operations' own bodies are specifications in plain loops.

Same results, less time: the tree is bit for bit that of the reference, tests hold it so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ddtree_kernels.ops.tree_build import reference
from ddtree_kernels.ops.tree_build.tree import DraftTree, words_for

if TYPE_CHECKING:
    from ddtree_kernels.models.api import Cache

_MASK = (1 << 64) - 1


def _ranked(values: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k best and their tokens, as a stable sort gives them: a selection is that unless two of them are equal."""
    if k < values.shape[-1]:
        best, tokens = values.topk(k + 1, dim=-1)
        if not bool((best[:, 1:] == best[:, :-1]).any()):
            return best[:, :k], tokens[:, :k]
    best, tokens = torch.sort(values, dim=-1, descending=True, stable=True)
    return best[:, :k], tokens[:, :k]


def _log_probs(logits: torch.Tensor, k: int, temperature: float) -> tuple[list[list[float]], list[list[int]]]:
    """As reference.top_log_probs, of one request [L, V]."""
    values = reference.clean(logits)
    best, tokens = _ranked(values, k)
    scaled, best_scaled = values, best
    if temperature != 1:
        inverse = reference.rounded(1.0 / temperature)
        scaled = (values * inverse).clamp(max=reference.FLOAT32_MAX)
        best_scaled = (best * inverse).clamp(max=reference.FLOAT32_MAX)
    top = scaled.amax(dim=-1, keepdim=True)
    shift = torch.where(top == -torch.inf, 0.0, top)
    total = (scaled - shift).double().exp().sum(dim=-1, keepdim=True).clamp(min=1.0)
    return ((best_scaled - shift) - total.log().float()).clamp(max=0.0).tolist(), tokens.tolist()


def tree_build(
    logits: torch.Tensor, root: torch.Tensor, budget: int, top_k: int | None, spine: bool, temperature: float
) -> DraftTree:
    """The tree of one request from logits [L, V] and root [1], arguments unchecked; as ops.tree_build of [1, L, V]."""
    k = min(budget, logits.shape[-1], top_k or budget)
    rows, ids = _log_probs(logits, k, temperature)
    size, words = budget + 1, words_for(budget + 1)
    tokens, parents, depths = [-1] * size, [-1] * size, [-1] * size
    scores, first, following = [-1.0] * size, [-1] * size, [-1] * size
    tokens[0], depths[0], scores[0] = int(root), 0, 0.0
    seen, last = [1] + [0] * budget, [-1] * size
    count = 1
    for node, (parent, depth, score, rank) in enumerate(reference.best_first(rows, budget, spine), start=1):
        tokens[node], parents[node], depths[node], scores[node] = ids[depth - 1][rank], parent, depth, score
        seen[node] = seen[parent] | 1 << node
        if last[parent] < 0:
            first[parent] = node
        else:
            following[last[parent]] = node
        last[parent] = node
        count = node + 1
    visible = [[reference.signed(bits >> 64 * word & _MASK) for word in range(words)] for bits in seen]

    small = torch.tensor([[parents], [depths], [first], [following]], dtype=torch.int32)
    return DraftTree(
        tokens=torch.tensor([tokens]),
        parents=small[0],
        depths=small[1],
        log_probs=torch.tensor([scores]),
        counts=torch.tensor([count], dtype=torch.int32),
        visibility=torch.tensor([visible]),
        first_child=small[2],
        next_sibling=small[3],
    )


def commit(cache: Cache, length: int, nodes: torch.Tensor) -> None:
    """Row length + i of every layer becomes its old row length + nodes[i]; nothing moves where all are in place."""
    count = nodes.shape[0]
    if int(nodes[-1]) == count - 1:  # they rise strictly from 0
        return
    source, last = nodes + length, length + count
    for tensor in (*cache.keys, *cache.values):
        tensor[0, length:last] = tensor[0, source]
