"""The GPU's trees against the CPU's: one launch under Triton's interpreter (on a GPU: compiled), and the heap."""

from __future__ import annotations

import pytest
import torch

from ddtree_kernels.sglang_plugin import grown
from ddtree_kernels.sglang_plugin.ranked import Ranked, rank
from ddtree_kernels.sglang_plugin.stopwatch import EVERY, Stopwatch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def both(ranked: Ranked, batch: int, budget: int) -> None:
    """The two give the same of everything."""
    bonus = torch.arange(batch, device=DEVICE) + 40
    prefix = torch.tensor([(17 * i) % 23 for i in range(batch)], dtype=torch.int32, device=DEVICE)
    total = int(prefix.sum())
    device, host = (f(ranked, bonus, prefix, total, budget) for f in (grown.on_device, grown.on_host))
    assert torch.equal(device.told[:2], host.told[:2]), (device.told[:2] != host.told[:2]).nonzero()
    assert device.tokens.view(batch, -1)[:, 0].tolist() == bonus.tolist()
    assert torch.equal(device.positions, host.positions) and torch.equal(device.mask, host.mask)


@pytest.mark.parametrize(
    ("batch", "depth", "ranks", "budget"),
    [(1, 15, 31, 31), (2, 15, 63, 63), (8, 15, 15, 15), (3, 4, 7, 20), (3, 3, 2, 9), (1, 1, 5, 4), (2, 15, 3, 40)],
)
def test_any_shape(batch: int, depth: int, ranks: int, budget: int) -> None:
    torch.manual_seed(budget)
    both(rank(torch.randn(batch * depth, 90, device=DEVICE) * 3, ranks), batch, budget)


def test_equals_go_to_the_older_node() -> None:
    """Powers of two as probabilities: sums are exact, and many prefixes tie."""
    values = torch.tensor([[-1.0, -2.0, -2.0, -3.0, -4.0]] * 6, device=DEVICE)
    ids = torch.arange(5, device=DEVICE).repeat(6, 1) + 10 * torch.arange(6, device=DEVICE)[:, None]
    both(Ranked(values, ids, ids[:, 0].contiguous()), 2, 28)


def test_the_argmax_is_the_spine_where_topk_lists_another_first() -> None:
    values = torch.tensor([[-1.0, -1.0, -2.0], [-0.5, -0.5, -0.5]], device=DEVICE)
    ids = torch.tensor([[7, 5, 9], [1, 2, 3]], device=DEVICE)
    both(Ranked(values, ids, torch.tensor([5, 3], device=DEVICE)), 1, 8)


def test_what_is_no_number_is_the_least() -> None:
    """Rows without any probability still give a whole tree of different paths."""
    nan, none = float("nan"), float("-inf")
    values = torch.tensor([[-1.0, nan, nan], [nan, nan, nan], [-1.0, none, none]], device=DEVICE)
    ids = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]], device=DEVICE)
    bonus, prefix = torch.tensor([50], device=DEVICE), torch.tensor([3], device=DEVICE)
    made = grown.on_device(Ranked(values, ids, ids[:, 0].contiguous()), bonus, prefix, 3, 30)
    tokens, parents = made.told[0, 0].tolist(), made.told[1, 0].tolist()
    assert parents[:4] == [-1, 0, 1, 2] and tokens[:4] == [50, 1, 4, 7]
    assert all(parent < node for node, parent in enumerate(parents))
    assert len(set(zip(parents, tokens, strict=True))) == 31


def test_the_stopwatch_measures_every_sixteenth_round_of_a_gpu() -> None:
    watch, found = Stopwatch(DEVICE), []
    for _ in range(2 * EVERY):
        watch.begin()
        watch.mark("draft")
        watch.mark("tree")
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        found.append(watch.read())
    measured = [i for i, parts in enumerate(found) if set(parts) == {"draft", "tree"}]
    assert measured == ([EVERY - 1, 2 * EVERY - 1] if DEVICE == "cuda" else [])
