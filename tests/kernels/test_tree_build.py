"""tree_build's reference: hand-written trees, brute force, properties, and what the public function refuses."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_kernels import tree_build
from ddtree_kernels.ops.tree_build import reference
from tests.kernels.helpers import brute_force, check_shape_of_tree, rank_tuples

LOGITS = torch.tensor([[[0.6, 0.3, 0.1], [0.1, 0.7, 0.2]]]).log()


def test_a_tree_by_hand() -> None:
    tree = tree_build(LOGITS, torch.tensor([9]), budget=4)
    # 0.6, 0.6*0.7 = 0.42, 0.3, 0.3*0.7 = 0.21; next would be 0.6*0.2 = 0.12
    assert tree.tokens.tolist() == [[9, 0, 1, 1, 1]]
    assert tree.parents.tolist() == [[-1, 0, 1, 0, 3]]
    assert tree.depths.tolist() == [[0, 1, 2, 1, 2]]
    assert tree.counts.tolist() == [5]
    assert tree.visibility.tolist() == [[[0b1], [0b11], [0b111], [0b1001], [0b11001]]]
    assert tree.first_child.tolist() == [[1, 2, -1, 4, -1]]
    assert tree.next_sibling.tolist() == [[-1, 3, -1, -1, -1]]
    torch.testing.assert_close(tree.log_probs[0, 1:].exp(), torch.tensor([0.6, 0.42, 0.3, 0.21]))


def test_spine_is_kept_where_the_budget_only_just_holds_it() -> None:
    logits = torch.tensor([[[0.5, 0.4, 0.1], [0.34, 0.33, 0.33]]]).log()
    assert tree_build(logits, torch.tensor([0]), budget=2).depths.tolist() == [[0, 1, 1]]
    assert tree_build(logits, torch.tensor([0]), budget=2, spine=True).depths.tolist() == [[0, 1, 2]]


def test_equal_scores_go_to_the_shallower_then_the_lower_ranks() -> None:
    logits = torch.zeros(1, 3, 2)
    tree = tree_build(logits, torch.tensor([5]), budget=5)
    assert tree.parents.tolist() == [[-1, 0, 0, 1, 1, 2]]
    assert tree.tokens.tolist() == [[5, 0, 1, 0, 1, 0]]


def test_less_than_the_budget_is_padded() -> None:
    tree = tree_build(torch.zeros(1, 2, 1), torch.tensor([3]), budget=4)
    assert tree.tokens.tolist() == [[3, 0, 0, -1, -1]]
    assert tree.counts.tolist() == [3]
    check_shape_of_tree(tree, 0)


def test_nan_and_infinities_are_defined() -> None:
    logits = torch.tensor([[[math.nan, 1.0, -math.inf], [math.inf, 0.0, math.inf], [math.nan] * 3]])
    tree = tree_build(logits, torch.tensor([0]), budget=8)
    # one token at depth 1, two of one half each at depth 2 and a hopeless one, nothing below a row without probability
    assert tree.tokens.tolist() == [[0, 1, 0, 2, 1, -1, -1, -1, -1]]
    torch.testing.assert_close(tree.log_probs[0, :4], torch.tensor([0.0, 0.0, math.log(0.5), math.log(0.5)]))


def test_temperature_flattens_and_top_k_limits() -> None:
    cold = tree_build(LOGITS, torch.tensor([0]), budget=3, temperature=0.1)
    warm = tree_build(LOGITS, torch.tensor([0]), budget=3, temperature=10.0)
    assert cold.depths.tolist() == [[0, 1, 2, 1]] or cold.depths.max() == 2
    assert warm.depths.tolist() == [[0, 1, 1, 1]]
    one = tree_build(LOGITS, torch.tensor([0]), budget=3, top_k=1)
    assert one.tokens.tolist() == [[0, 0, 1, -1]]


@settings(max_examples=40, deadline=None)
@given(
    depth=st.integers(1, 4),
    vocab=st.integers(1, 4),
    budget=st.integers(1, 24),
    spread=st.sampled_from([0.0, 0.3, 2.0]),
    seed=st.integers(0, 2**31),
)
def test_the_set_is_that_of_brute_force(depth: int, vocab: int, budget: int, spread: float, seed: int) -> None:
    # few distinct values, so that ties are common
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(1, depth, vocab, generator=generator) * spread).round()
    log_probs, tokens = reference.top_log_probs(logits, vocab)
    tree = reference.select(log_probs, tokens, torch.tensor([0]), budget)
    assert rank_tuples(tree, 0, tokens[0].tolist()) == brute_force(log_probs[0].tolist(), budget)


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 3),
    depth=st.integers(1, 6),
    vocab=st.integers(1, 40),
    budget=st.integers(1, 70),
    spine=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_every_tree_is_well_formed_and_alone_in_its_batch(
    batch: int, depth: int, vocab: int, budget: int, spine: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, depth, vocab, generator=generator) * 2
    root = torch.arange(batch)
    tree = tree_build(logits, root, budget=budget, spine=spine)
    order = torch.randperm(batch, generator=generator)
    other = tree_build(logits[order], root[order], budget=budget, spine=spine)
    assert torch.equal(tree.tokens[order], other.tokens)
    for n in range(batch):
        check_shape_of_tree(tree, n)
        if spine:
            best = logits[n].argmax(dim=-1).tolist()
            node = 0
            for token in best[: min(budget, depth)]:
                node = int(tree.first_child[n, node])
                assert int(tree.tokens[n, node]) == token


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"budget": 0}, ValueError, "budget is 0"),
        ({"budget": 1025}, ValueError, "budget is 1025"),
        ({"top_k": 0}, ValueError, "top_k"),
        ({"temperature": 0.0}, ValueError, "temperature"),
        ({"temperature": math.nan}, ValueError, "temperature"),
        ({"draft_logits": torch.zeros(2, 3)}, ValueError, r"draft_logits has shape \[2, 3\]"),
        ({"draft_logits": torch.zeros(1, 65, 3)}, ValueError, "65 positions"),
        ({"draft_logits": torch.zeros(1, 2, 3, dtype=torch.float64)}, TypeError, "float64"),
        ({"draft_logits": torch.zeros(1, 3, 2).transpose(1, 2)}, ValueError, "not contiguous"),
        ({"draft_logits": None}, TypeError, "must be a tensor"),
        ({"root_tokens": torch.zeros(2, dtype=torch.int64)}, ValueError, r"root_tokens has shape \[2\]"),
        ({"root_tokens": torch.zeros(1)}, TypeError, "root_tokens is float32"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, object], error: type[Exception], message: str) -> None:
    arguments: dict[str, object] = {"draft_logits": LOGITS, "root_tokens": torch.tensor([0]), "budget": 4}
    with pytest.raises(error, match=message):
        tree_build(**(arguments | change))  # type: ignore[arg-type]
