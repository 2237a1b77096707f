"""tree_build's kernels against the reference: bit for bit, on poisoned memory."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddtree_kernels.ops.tree_build import launch, ranking, reference
from ddtree_kernels.ops.tree_build.tuning import DEFAULT, Tuning
from tests.kernels.helpers import DEVICE, ON_GPU, check_shape_of_tree, differences, random_logits

bf16, fp16, fp32 = torch.bfloat16, torch.float16, torch.float32
CASES = [
    # batch, depth, vocab, budget, type, spine, top_k, spread
    (1, 1, 1, 1, fp32, False, None, 1.0),
    (1, 3, 7, 4, fp32, False, None, 3.0),
    (2, 5, 101, 16, bf16, False, None, 3.0),
    (2, 4, 90, 33, fp16, True, None, 3.0),
    (1, 6, 133, 20, bf16, True, 5, 3.0),
    (2, 3, 1, 8, fp32, True, None, 1.0),
    (1, 4, 60, 70, fp32, False, None, 0.0),  # all equal
    (1, 4, 5000, 40, bf16, False, None, 6.0),
]
LISTS = Tuning(small=0, pops=0)  # as a large vocabulary and budget
MANY = Tuning(small=0, pops=0, many_rows=0)  # and as many rows
APART = Tuning(grow=0, pops=0)  # a small vocabulary's rows, then as a large budget
GROWN = Tuning(pops=0)  # a small vocabulary's tree as with a spine, which cannot be popped
LISTS_CASES = [
    (2, 5, 101, 16, bf16, False, None, 3.0),
    (1, 2, 300, 3, fp32, True, None, 0.0),  # more equal tokens than a list holds
    (1, 3, 777, 20, fp16, True, 5, 3.0),
]
GROWN_CASES = [(2, 5, 61, 16, bf16, False, None, 3.0), (1, 4, 40, 50, fp32, False, 6, 0.0)]
POPPED = Tuning(small=0)  # as a large vocabulary and a small budget
POPPED_CASES = [(2, 5, 101, 16, bf16, False, None, 3.0), (2, 3, 20, 40, fp32, False, 6, 1.0)]
MANY_CASES = [(2, 3, 1900, 9, fp32, False, None, 3.0)]
APART_CASES = [(2, 5, 101, 150, bf16, True, None, 2.0)]
RUNS = [
    *((case, DEFAULT) for case in CASES),
    *((case, LISTS) for case in LISTS_CASES),
    *((case, MANY) for case in MANY_CASES),
    *((case, APART) for case in APART_CASES),
    *((case, GROWN) for case in GROWN_CASES),
    *((case, POPPED) for case in POPPED_CASES),
]


def named(value: object) -> str:
    """A short id."""
    return {
        DEFAULT: "default",
        LISTS: "lists",
        MANY: "many",
        APART: "apart",
        GROWN: "grown",
        POPPED: "popped lists",
    }.get(value, str(value))  # type: ignore[call-overload]


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
    full = ranking.rank_tokens(logits, budget, k, 0.7, prune=False, tuning=tuning)
    assert torch.equal(full.tokens.long(), tokens)
    torch.testing.assert_close(full.log_probs, log_probs, atol=1e-5, rtol=1e-5)
    # exp and log differ in the last bit between devices: the same log-probabilities must give the same tree
    want = reference.select(full.log_probs, full.tokens, root, budget, spine)
    have = launch.tree_build(logits, root, budget, top_k, spine, 0.7, tuning)
    assert differences(have, want) == []
    for n in range(batch):
        check_shape_of_tree(have, n)


@pytest.mark.parametrize(("tuning", "dtype"), [(DEFAULT, fp32), (POPPED, bf16), (LISTS, fp16)], ids=named)
@pytest.mark.usefixtures("poisoned")
def test_kernels_survive_nan_and_infinities(tuning: Tuning, dtype: torch.dtype) -> None:
    logits = random_logits((2, 4, 50), 2.0, dtype, 1)
    logits[0, 1, ::3] = math.nan
    logits[0, 2, 5:7] = math.inf
    logits[0, 2, 3] = torch.finfo(dtype).max  # less than infinity, unless it is float32's
    logits[0, 3] = -math.inf
    logits[1, 0] = math.nan
    root = torch.tensor([7, 8], device=DEVICE)
    full = ranking.rank_tokens(logits, 12, 12, prune=False, tuning=tuning)
    missing = torch.arange(12, device=DEVICE) >= full.lengths[..., None]  # what has no probability may not be listed
    full.log_probs[missing], full.tokens[missing] = -math.inf, 0
    want = reference.select(full.log_probs, full.tokens, root, 12)
    have = launch.tree_build(logits, root, 12, tuning=tuning)
    assert differences(have, want) == []
    assert have.counts.tolist()[1] == 1
    log_probs, _ = reference.top_log_probs(logits, 12)
    torch.testing.assert_close(full.log_probs, log_probs, atol=1e-5, rtol=1e-5)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batch=st.integers(1, 2),
    depth=st.integers(1, 5),
    vocab=st.integers(1, 48),
    budget=st.integers(1, 40),
    spine=st.booleans(),
    top_k=st.sampled_from([None, 3]),
    spread=st.sampled_from([0.0, 0.5, 4.0]),
    seed=st.integers(0, 2**31),
)
@pytest.mark.usefixtures("poisoned")
def test_small_vocabularies_grow_the_reference_tree(
    batch: int, depth: int, vocab: int, budget: int, spine: bool, top_k: int | None, spread: float, seed: int
) -> None:
    # whole numbers, so that ties are common
    logits = random_logits((batch, depth, vocab), spread, fp32, seed).round()
    root = torch.arange(batch, device=DEVICE)
    k = min(budget, vocab, top_k or budget)
    full = ranking.rank_tokens(logits, budget, k)
    _, tokens = reference.top_log_probs(logits, k)
    assert torch.equal(full.tokens.long(), tokens)
    want = reference.select(full.log_probs, full.tokens, root, budget, spine)
    assert differences(launch.tree_build(logits, root, budget, top_k, spine), want) == []


@pytest.mark.skipif(not ON_GPU, reason="no CUDA GPU: 15 rows of 512 take minutes under the interpreter")
@pytest.mark.parametrize("budget", [8, 64, 127, 256, 300, 1024])
@pytest.mark.parametrize(("batch", "dtype"), [(1, bf16), (8, fp32)])
@pytest.mark.usefixtures("poisoned")
def test_a_small_drafter_s_shapes(budget: int, batch: int, dtype: torch.dtype) -> None:
    root = torch.arange(batch, device=DEVICE)
    for spread in (4.0, 1.0, 0.0):
        logits = random_logits((batch, 15, 512), spread, dtype, budget)
        full = ranking.rank_tokens(logits, budget, min(budget, 512), prune=False)
        log_probs, tokens = reference.top_log_probs(logits, min(budget, 512))
        assert torch.equal(full.tokens.long(), tokens)
        torch.testing.assert_close(full.log_probs, log_probs, atol=1e-5, rtol=1e-5)
        for spine in (False, True):
            want = reference.select(full.log_probs, full.tokens, root, budget, spine)
            assert differences(launch.tree_build(logits, root, budget, spine=spine), want) == []


@pytest.mark.skipif(not ON_GPU, reason="no CUDA GPU: 480 rows take minutes under the interpreter")
@pytest.mark.parametrize(("batch", "budget"), [(32, 64), (9, 300)])
@pytest.mark.usefixtures("poisoned")
def test_many_rows_of_a_large_vocabulary(batch: int, budget: int) -> None:
    root = torch.arange(batch, device=DEVICE)
    for spread in (4.0, 0.0):
        logits = random_logits((batch, 15, 30011), spread, bf16, budget)
        full = ranking.rank_tokens(logits, budget, budget, prune=False)
        _, tokens = reference.top_log_probs(logits, budget)
        assert torch.equal(full.tokens.long(), tokens)
        want = reference.select(full.log_probs, full.tokens, root, budget)
        assert differences(launch.tree_build(logits, root, budget), want) == []


@pytest.mark.parametrize(
    ("depth", "k", "budget", "spread"),
    [
        (15, 64, 64, 4.0),
        (15, 64, 64, 0.25),  # ties at every depth
        (16, 40, 130, 2.0),
        (15, 128, 128, 1.0),
        (19, 2, 66, 1.0),
        (1, 300, 256, 3.0),
        (15, 1, 20, 1.0),
        (23, 8, 31, 1.0),
    ],
)
@pytest.mark.usefixtures("poisoned")
def test_popped_trees_of_any_ranked_rows(depth: int, k: int, budget: int, spread: float) -> None:
    assert Tuning(pops=256).popped(budget, depth)
    root = torch.arange(2, device=DEVICE)
    logits = (2 * random_logits((2, depth, 300), spread, fp32, budget)).round() / 2  # so that ties are common
    logits[0, depth // 2, 5:] = -math.inf
    log_probs, tokens = reference.top_log_probs(logits, k)
    lengths = torch.full((2, depth), k, dtype=torch.int32, device=DEVICE)
    ranked = ranking.Ranked(log_probs, tokens.int(), lengths, torch.empty(2, device=DEVICE))
    want = reference.select(log_probs, tokens, root, budget)
    assert differences(launch.pop(ranked, root, budget, whole=True), want) == []


def test_which_trees_are_popped() -> None:
    assert DEFAULT.popped(64, 15) and DEFAULT.popped(64, 19)
    assert not DEFAULT.popped(64, 20)  # a code of 20 ones and zeros and 2 * 6 bits has no room
    assert not Tuning(pops=1024).popped(257, 3)
    fine = DEFAULT.for_budget(DEFAULT.fine + 1)
    assert (fine.bins, fine.per_nat) == (2 * DEFAULT.bins, 2 * DEFAULT.per_nat)
    assert DEFAULT.for_budget(DEFAULT.fine) is DEFAULT and fine.for_budget(1024) is fine


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
    full = ranking.rank_tokens(logits, 60, 40, prune=False)
    full.floors.fill_(-math.inf)
    want = reference.select(full.log_probs, full.tokens, root, 60)
    assert differences(launch.select(full, root, 60), want) == []
