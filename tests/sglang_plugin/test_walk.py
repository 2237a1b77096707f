"""The walk against a search of all paths, and the chain against stock's rule."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_kernels.sglang_plugin import walk
from ddtree_kernels.sglang_plugin.tree import Tree, grow
from tests.sglang_plugin.trees import Drafted, drafted


def longest(tree: Tree, chosen: list[int]) -> list[int]:
    """Every path from the root on which each node is the target's token at its parent; the longest."""
    best: list[int] = []
    paths = [[0]]
    while paths:
        path = paths.pop()
        best = max(best, path, key=len)
        children = [n for n in range(tree.width) if tree.parents[n] == path[-1]]
        paths += [[*path, n] for n in children if tree.tokens[n] == chosen[path[-1]]]
    return best


@given(drafted(), st.data())
@settings(max_examples=120, deadline=None)
def test_walk(block: Drafted, data: st.DataObject) -> None:
    tree = grow(0, block.log_probs, block.ids, block.budget)
    depth = len(block.ids)
    likely = [[tree.tokens[c] for c in range(tree.width) if tree.parents[c] == n] or [99] for n in range(tree.width)]
    chosen = [data.draw(st.sampled_from([*likely[n], 99])) for n in range(tree.width)]
    path, chain = walk.tree_path(tree, chosen), walk.chain_path(tree, chosen, depth)
    assert path == longest(tree, chosen)
    hits = 0
    while hits < depth and block.ids[hits][0] == chosen[hits]:
        hits += 1
    assert chain == list(range(hits + 1))
    by_tree, by_chain = walk.emitted(tree, chosen, path), walk.emitted(tree, chosen, chain)
    # no tree accepts less than the chain, and it begins with the chain's tokens
    assert len(by_tree) == len(path) <= depth + 1 and by_tree[: len(by_chain)] == by_chain
    assert by_tree[-1] == chosen[path[-1]]
