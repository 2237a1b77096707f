"""Random inputs, brute force and comparison for the kernels' tests."""

from __future__ import annotations

import dataclasses
import itertools

import torch

from ddtree_kernels.ops.tree_build.tree import DraftTree

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"


def random_logits(shape: tuple[int, int, int], spread: float, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Normal logits of this spread, with ties where the type is coarse."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) * spread).to(dtype).to(DEVICE)


def differences(have: DraftTree, want: DraftTree) -> list[str]:
    """Names of the fields in which two trees differ in any bit, type or shape."""
    pairs = [(field.name, getattr(have, field.name), getattr(want, field.name)) for field in dataclasses.fields(want)]
    return [name for name, a, b in pairs if a.dtype != b.dtype or a.shape != b.shape or not torch.equal(a, b)]


def brute_force(rows: list[list[float]], budget: int) -> list[tuple[int, ...]]:
    """The `budget` best rank tuples of all there are, by (higher float32 sum, shallower, lower ranks)."""
    found = []
    for depth in range(1, len(rows) + 1):
        for ranks in itertools.product(*(range(len(row)) for row in rows[:depth])):
            score = torch.zeros((), dtype=torch.float32)
            for row, rank in zip(rows, ranks, strict=False):
                score = score + torch.tensor(row[rank], dtype=torch.float32)
            if score > -torch.inf:
                found.append((-float(score), depth, ranks))
    return [ranks for _, _, ranks in sorted(found)[:budget]]


def rank_tuples(tree: DraftTree, n: int, top_tokens: list[list[int]]) -> list[tuple[int, ...]]:
    """Each node of one request's tree as the ranks on its path, root left out."""
    paths: list[tuple[int, ...]] = [()]
    parents, tokens, depths = tree.parents[n].tolist(), tree.tokens[n].tolist(), tree.depths[n].tolist()
    for node in range(1, int(tree.counts[n])):
        paths.append((*paths[parents[node]], top_tokens[depths[node] - 1].index(tokens[node])))
    return paths[1:]


def check_shape_of_tree(tree: DraftTree, n: int) -> None:
    """What holds of every tree: parents first, prefix-closed, links and bits that agree with the parents, padding."""
    count = int(tree.counts[n])
    parents, depths = tree.parents[n].tolist(), tree.depths[n].tolist()
    tokens, scores = tree.tokens[n].tolist(), tree.log_probs[n].tolist()
    assert (parents[0], depths[0], scores[0]) == (-1, 0, 0.0)
    ancestors = [{0}]
    for node in range(1, count):
        assert 0 <= parents[node] < node
        assert depths[node] == depths[parents[node]] + 1
        assert scores[node] <= scores[parents[node]]
        ancestors.append(ancestors[parents[node]] | {node})
    assert all(a >= b for a, b in itertools.pairwise(scores[:count]))
    for node in range(count):
        bits = {
            64 * word + bit
            for word, value in enumerate(tree.visibility[n, node].tolist())
            for bit in range(64)
            if value >> bit & 1
        }
        assert bits == ancestors[node]
        children, child = [], int(tree.first_child[n, node])
        while child >= 0:
            children.append(child)
            child = int(tree.next_sibling[n, child])
        assert children == [other for other in range(count) if parents[other] == node]
        assert len({tokens[child] for child in children}) == len(children)
    for field in (tree.tokens, tree.parents, tree.depths, tree.log_probs, tree.first_child, tree.next_sibling):
        assert (field[n, count:] == -1).all()
    assert (tree.visibility[n, count:] == 0).all()
