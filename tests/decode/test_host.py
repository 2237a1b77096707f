"""What decoding does itself on a CPU is what the operations do: the same tree in every bit, the same rows."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ddtree_kernels.decode import host
from ddtree_kernels.models.cache import Cache
from ddtree_kernels.ops.tree_accept import Accepted
from ddtree_kernels.ops.tree_build import tree_build
from tests.decode.pairs import shape


@pytest.mark.parametrize("step", [0.0, 0.25, 4.0], ids=["all differ", "ties", "many ties"])
@pytest.mark.parametrize(("budget", "top_k", "spine", "temperature"), [(1, None, False, 1.0), (24, None, False, 1.0),
                         (24, 3, True, 1.7), (70, None, True, 0.5), (300, None, False, 3.0)])  # fmt: skip
def test_the_tree_is_the_operation_s(
    step: float, budget: int, top_k: int | None, spine: bool, temperature: float
) -> None:
    generator = torch.Generator().manual_seed(budget)
    for vocab in (5, 64, 300):
        logits = torch.randn(7, vocab, generator=generator) * 4
        logits = (logits / step).round() * step if step else logits
        logits[3, 1], logits[5, 0], logits[6] = float("nan"), float("inf"), -torch.inf
        root = torch.tensor([3])
        want = tree_build(logits[None], root, budget=budget, top_k=top_k, spine=spine, temperature=temperature)
        have = host.tree_build(logits, root, budget, top_k, spine, temperature)
        for field in dataclasses.fields(want):
            a, b = getattr(have, field.name), getattr(want, field.name)
            assert a.dtype == b.dtype and torch.equal(a, b), field.name


@given(st.sets(st.integers(1, 19), max_size=9), st.integers(0, 10))
def test_rows_are_moved_as_by_the_operation(rest: set[int], length: int) -> None:
    nodes = torch.tensor([0, *sorted(rest)])
    one, two = Cache(shape(2), 32), Cache(shape(2), 32)
    one.storage.copy_(torch.randn(one.storage.shape))
    two.storage.copy_(one.storage)
    host.commit(one, length, nodes)
    counts = torch.tensor([len(nodes)], dtype=torch.int32)
    two.commit(Accepted(nodes[None].int(), counts, torch.tensor([0])), torch.tensor([length]))
    assert torch.equal(one.storage, two.storage)
