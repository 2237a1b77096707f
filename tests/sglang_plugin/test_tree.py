"""The tree: its shape, the spine first, and the best of all prefixes beside it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings

from ddtree_kernels.sglang_plugin.tree import capacity, grow
from tests.sglang_plugin.trees import Drafted, drafted, prefixes, ranks_of


@given(drafted())
@settings(max_examples=120, deadline=None)
def test_shape(block: Drafted) -> None:
    tree = grow(77, block.log_probs, block.ids, block.budget)
    depth = len(block.ids)
    assert tree.width == block.budget + 1 == len(tree.parents) == len(tree.depths) == len(tree.bits)
    assert (tree.tokens[0], tree.parents[0], tree.depths[0], tree.bits[0]) == (77, -1, 0, 1)
    # the spine first: rows 0..L are stock's own chain
    assert tree.parents[1 : depth + 1] == tuple(range(depth))
    assert tree.tokens[1 : depth + 1] == tuple(row[0] for row in block.ids)
    for node in range(1, tree.width):
        parent = tree.parents[node]
        assert 0 <= parent < node and tree.depths[node] == tree.depths[parent] + 1 <= depth
        assert tree.bits[node] == tree.bits[parent] | 1 << node
    assert len({(p, t) for p, t in zip(tree.parents[1:], tree.tokens[1:], strict=True)}) == block.budget


@given(drafted())
@settings(max_examples=120, deadline=None)
def test_the_rest_are_the_most_probable_prefixes(block: Drafted) -> None:
    tree = grow(0, block.log_probs, block.ids, block.budget)
    depth = len(block.ids)
    chosen = ranks_of(tree.parents, tree.tokens, tree.depths, block)[1:]
    score = {ranks: value for value, ranks in prefixes(block)}
    spine = {(0,) * d for d in range(1, depth + 1)}
    rest = sorted((score[r] for r in score if r not in spine), reverse=True)
    mine = sorted((score[r] for r in chosen if r not in spine), reverse=True)
    for a, b in zip(mine, rest[: len(mine)], strict=True):
        assert a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    # closed below prefixes, and by falling rank below each parent
    seen = {(), *chosen}
    assert all(r[:-1] in seen and (r[-1] == 0 or (*r[:-1], r[-1] - 1) in seen) for r in chosen)


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="cannot hold the chain of 3"):
        grow(0, [[-1.0, -2.0]] * 3, [[1, 2]] * 3, 2)
    with pytest.raises(ValueError, match="more than 2 positions of 2 tokens can hold"):
        grow(0, [[-1.0, -2.0]] * 2, [[1, 2]] * 2, 7)
    with pytest.raises(ValueError, match="cannot hold the chain of 0"):
        grow(0, [], [], 4)
    assert [capacity(2, 2, 99), capacity(3, 1, 99), capacity(15, 64, 1000)] == [6, 3, 1000]


def test_nan_is_the_lowest() -> None:
    nan = float("nan")
    tree = grow(0, [[-1.0, nan, nan], [-1.0, -9.0, nan]], [[1, 2, 3], [4, 5, 6]], 4)
    assert tree.tokens == (0, 1, 4, 5, 6) or tree.tokens[:4] == (0, 1, 4, 5)
