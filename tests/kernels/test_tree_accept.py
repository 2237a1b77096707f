"""tree_accept and linear_accept: by hand, and the kernels against the reference."""

from __future__ import annotations

import math

import pytest
import torch

from ddtree_kernels import linear_accept, tree_accept, tree_build
from ddtree_kernels.ops.tree_accept import launch, reference
from tests.kernels.helpers import DEVICE, ON_GPU, random_logits

LOGITS = torch.tensor([[[0.6, 0.3, 0.1], [0.1, 0.7, 0.2]]]).log()


def test_a_walk_by_hand() -> None:
    tree = tree_build(
        LOGITS, torch.tensor([9]), budget=4
    )  # 0 -> (1: token 0 -> 2: token 1), (3: token 1 -> 4: token 1)
    walks = {
        (1, 0, 0, 1, 7): ([0, 3, 4], 7),  # the sibling, then its child, then the bonus
        (0, 2, 0, 0, 0): ([0, 1], 2),
        (2, 0, 0, 0, 0): ([0], 2),
    }
    for target, (path, bonus) in walks.items():
        got = tree_accept(tree, torch.tensor([target]), max_depth=2)
        assert got.nodes.tolist() == [path + [-1] * (3 - len(path))]
        assert got.counts.tolist() == [len(path)]
        assert got.bonus.tolist() == [bonus]


def test_a_chain_by_hand() -> None:
    draft = torch.tensor([[4, 5, 6], [4, 5, 6], [1, 1, 1]])
    target = torch.tensor([[4, 5, 6, 7], [4, 9, 6, 7], [2, 1, 1, 1]])
    got = linear_accept(draft, target)
    assert got.nodes.tolist() == [[0, 1, 2, 3], [0, 1, -1, -1], [0, -1, -1, -1]]
    assert got.counts.tolist() == [4, 2, 1]
    assert got.bonus.tolist() == [7, 9, 2]


def test_argmax_takes_the_lowest_of_equals_and_no_nan() -> None:
    rows = torch.tensor([[1.0, 3.0, 3.0], [math.nan, -1.0, -2.0], [-math.inf] * 3, [0.0, -0.0, -1.0]])
    assert reference.argmax(rows).tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("budget", "depth", "vocab"), [(1, 1, 2), (20, 6, 9), (70, 4, 33)])
@pytest.mark.parametrize("chained", [False, pytest.param(True, marks=pytest.mark.skipif(not ON_GPU, reason="no GPU"))])
@pytest.mark.usefixtures("poisoned")
def test_kernels_walk_as_the_reference(
    budget: int, depth: int, vocab: int, dtype: torch.dtype, chained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "CHAINED", chained)
    logits = random_logits((3, depth, vocab), 2.0, torch.float32, budget).cpu()
    tree = tree_build(logits, torch.arange(3), budget=budget)
    generator = torch.Generator().manual_seed(budget)
    links = (tree.first_child, tree.next_sibling)
    targets = [tree.tokens[:, torch.randint(0, min(8, budget + 1), (budget + 1,), generator=generator)]]
    targets.append(torch.randn(3, budget + 1, vocab, generator=generator).to(dtype))
    targets[1][0, 0, 1:] = math.nan
    for target in targets:
        tokens = reference.argmax(target) if target.dim() == 3 else target
        want = reference.tree_walk(tree.tokens, *links, tokens, depth)
        have = launch.tree_walk(tree.tokens.to(DEVICE), tree.parents.to(DEVICE), target.to(DEVICE), depth)
        for a, b in zip(have, want, strict=True):
            assert a.dtype == b.dtype
            assert torch.equal(a.cpu(), b)


@pytest.mark.usefixtures("poisoned")
def test_kernels_walk_chains_as_the_reference() -> None:
    generator = torch.Generator().manual_seed(1)
    for depth in (1, 7):
        draft = torch.randint(0, 2, (6, depth), generator=generator)
        target = torch.randint(0, 2, (6, depth + 1), generator=generator)
        target[0, :depth] = draft[0]
        logits = torch.randn(6, depth + 1, 3, generator=generator)
        for given, tokens in ((target, target), (logits, reference.argmax(logits))):
            have = launch.linear_walk(draft.to(DEVICE), given.to(DEVICE))
            assert all(torch.equal(a.cpu(), b) for a, b in zip(have, reference.linear_walk(draft, tokens), strict=True))


def test_wrong_arguments_are_named() -> None:
    tree = tree_build(LOGITS, torch.tensor([9]), budget=4)
    tokens = torch.zeros(1, 5, dtype=torch.int64)
    with pytest.raises(ValueError, match="either target_tokens or target_logits"):
        tree_accept(tree, max_depth=2)
    with pytest.raises(ValueError, match="max_depth"):
        tree_accept(tree, tokens, max_depth=0)
    with pytest.raises(ValueError, match="target_tokens has shape"):
        tree_accept(tree, tokens[:, :4], max_depth=2)
    with pytest.raises(TypeError, match="target_logits is int64"):
        tree_accept(tree, target_logits=tokens[..., None], max_depth=2)
    with pytest.raises(ValueError, match="target_tokens has shape"):
        linear_accept(tokens, tokens)
