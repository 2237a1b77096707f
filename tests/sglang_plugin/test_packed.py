"""What is copied to the device, and the layout of the flat mask, against plain loops."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_kernels.sglang_plugin import packed
from ddtree_kernels.sglang_plugin.tree import Tree, grow
from tests.sglang_plugin.trees import Drafted, drafted


def ancestors(tree: Tree, node: int) -> set[int]:
    """The node and all above it, by its parents."""
    seen = set()
    while node >= 0:
        seen.add(node)
        node = tree.parents[node]
    return seen


@given(drafted(), st.lists(st.integers(0, 9), min_size=1, max_size=4))
@settings(max_examples=50, deadline=None)
def test_mask(block: Drafted, prefixes: list[int]) -> None:
    trees = [grow(i, block.log_probs, block.ids, block.budget) for i in range(len(prefixes))]
    up = packed.upload(trees, "cpu")
    width = trees[0].width
    assert up.tokens.tolist() == [list(t.tokens) for t in trees] and up.tokens.dtype == torch.int64
    assert up.depths.tolist() == [list(t.depths) for t in trees]
    assert up.parents.tolist() == [list(t.parents) for t in trees]
    seen = torch.tensor(prefixes, dtype=torch.int32)
    flat = packed.flat_mask(up.visible, seen, sum(prefixes))
    wanted: list[bool] = []
    for tree, prefix in zip(trees, prefixes, strict=True):
        for node in range(width):
            wanted += [True] * prefix + [column in ancestors(tree, node) for column in range(width)]
    assert flat.tolist() == wanted and len(wanted) == packed.mask_size(sum(prefixes), len(prefixes), width)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3))
def test_any_token_id(tokens: list[int]) -> None:
    up = packed.upload([Tree(tuple(tokens), (-1, 0, 1), (0, 1, 2), (1, 3, 7))], "cpu")
    assert up.tokens.tolist() == [tokens]


def test_a_wide_tree_keeps_all_its_bits() -> None:
    width = 131
    chain = Tree(tuple(range(width)), tuple(range(-1, width - 1)), tuple(range(width)),
                 tuple((2 << i) - 1 for i in range(width)))  # fmt: skip
    assert torch.equal(packed.upload([chain], "cpu").visible, packed.causal(1, width, "cpu"))
