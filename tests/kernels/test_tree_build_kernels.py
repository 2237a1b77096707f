"""tree_build's kernels against the reference: bit for bit, on poisoned memory."""

from __future__ import annotations

import math

import pytest
import torch

from ddtree_kernels.ops.tree_build import launch, reference
from ddtree_kernels.ops.tree_build.tuning import DEFAULT, Tuning
from tests.kernels.helpers import DEVICE, check_shape_of_tree, differences, random_logits

bf16, fp16, fp32 = torch.bfloat16, torch.float16, torch.float32
CASES = [
    # batch, depth, vocab, budget, type, spine, top_k, spread
    (1, 1, 1, 1, fp32, False, None, 1.0),
    (1, 3, 7, 4, fp32, False, None, 3.0),
    (2, 5, 101, 16, bf16, False, None, 3.0),
    (2, 4, 300, 33, fp16, True, None, 3.0),
    (1, 6, 777, 20, bf16, True, 5, 3.0),
    (2, 3, 1, 8, fp32, True, None, 1.0),
    (1, 4, 60, 70, fp32, False, None, 0.0),  # all equal
    (1, 5, 9000, 40, bf16, False, None, 6.0),
]
LISTS = Tuning(pdl=True, lists=True, quick=True, lean=True)
LISTS_CASES = [
    (2, 5, 101, 16, bf16, False, None, 3.0),
    (1, 2, 300, 3, fp32, True, None, 0.0),  # more equal tokens than a list holds
    (1, 3, 777, 20, fp16, True, 5, 3.0),
]
RUNS = [*((case, DEFAULT) for case in CASES), *((case, LISTS) for case in LISTS_CASES)]


def named(value: object) -> str:
    """A short id."""
    return "lists" if value == LISTS else "default" if value == DEFAULT else str(value)


@pytest.mark.parametrize(("case", "tuning"), RUNS, ids=named)
@pytest.mark.usefixtures("poisoned")
def test_kernels_build_the_reference_tree(
    case: tuple[int, int, int, int, torch.dtype, bool, int | None, float], tuning: Tuning
) -> None:
    batch, depth, vocab, budget, dtype, spine, top_k, spread = case
    logits = random_logits((batch, depth, vocab), spread, dtype, budget)
    root = torch.arange(batch, device=DEVICE)
    k = min(budget, vocab, top_k or budget)
    log_probs, tokens = reference.top_log_probs(logits, k, 0.7)
    full = launch.rank_tokens(logits, budget, k, 0.7, prune=False, tuning=tuning)
    assert torch.equal(full.tokens.long(), tokens)
    torch.testing.assert_close(full.log_probs, log_probs, atol=1e-5, rtol=1e-5)
    # exp and log differ in the last bit between devices: the same log-probabilities must give the same tree
    want = reference.select(full.log_probs, full.tokens, root, budget, spine)
    have = launch.tree_build(logits, root, budget, top_k, spine, 0.7, tuning)
    assert differences(have, want) == []
    for n in range(batch):
        check_shape_of_tree(have, n)


@pytest.mark.parametrize("tuning", [DEFAULT, LISTS], ids=named)
@pytest.mark.usefixtures("poisoned")
def test_kernels_survive_nan_and_infinities(tuning: Tuning) -> None:
    logits = random_logits((2, 4, 50), 2.0, fp32, 1)
    logits[0, 1, ::3] = math.nan
    logits[0, 2, 5:7] = math.inf
    logits[0, 3] = -math.inf
    logits[1, 0] = math.nan
    root = torch.tensor([7, 8], device=DEVICE)
    full = launch.rank_tokens(logits, 12, 12, prune=False, tuning=tuning)
    missing = torch.arange(12, device=DEVICE) >= full.lengths[..., None]  # what has no probability may not be listed
    full.log_probs[missing], full.tokens[missing] = -math.inf, 0
    want = reference.select(full.log_probs, full.tokens, root, 12)
    have = launch.tree_build(logits, root, 12, tuning=tuning)
    assert differences(have, want) == []
    assert have.counts.tolist()[1] == 1
    log_probs, _ = reference.top_log_probs(logits, 12)
    torch.testing.assert_close(full.log_probs, log_probs, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("poisoned")
def test_logits_may_be_a_view() -> None:
    logits = random_logits((2, 5, 90), 3.0, bf16, 2)[:, 1:4, 10:73]
    root = torch.zeros(2, dtype=torch.int32, device=DEVICE)
    have = launch.tree_build(logits, root, 20)
    assert differences(have, launch.tree_build(logits.contiguous(), root, 20)) == []


@pytest.mark.usefixtures("poisoned")
def test_a_level_with_too_many_candidates_is_cut_exactly() -> None:
    # two equal tokens a level and a budget that no level fills: floors are useless, ties are everywhere
    logits = torch.full((1, 4, 40), -30.0, device=DEVICE)
    logits[:, :, 3:9] = 1.0
    root = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    full = launch.rank_tokens(logits, 60, 40, prune=False)
    full.floors.fill_(-math.inf)
    want = reference.select(full.log_probs, full.tokens, root, 60)
    assert differences(launch.select(full, root, 60), want) == []
    assert differences(launch.select(full, root, 60, quick=True), want) == []
