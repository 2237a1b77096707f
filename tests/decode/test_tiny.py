"""The shipped pair: equal answers in every mode and type, and sampling as autoregressive's. equality.py does more."""

from __future__ import annotations

import pytest
import torch

from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.models import load_pair
from ddtree_kernels.models.api import Pair
from ddtree_kernels.tiny.prompts import prompt_set
from tests.decode.distribution import drawn, p_same, undecided
from tests.decode.equality import BOUND, compare
from tests.decode.pairs import engine

SAMPLES = 80


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_pair("tiny")


@pytest.mark.parametrize("dtype", BOUND, ids=str)
def test_answers_are_the_same_but_for_close_calls(dtype: torch.dtype) -> None:
    prompts = [texts[0] for texts in prompt_set(1).values()][: 3 if dtype == torch.float64 else 2]
    found, counts = compare(load_pair("tiny", dtype=dtype), prompts, 16)
    assert all(one.margin <= BOUND[dtype] for one in found), found
    if BOUND[dtype] == 0:
        assert not found
    rounds = {mode: of.rounds for mode, of in counts.items()}
    assert rounds["ddtree"] < rounds["linear"] < 15 * len(prompts), rounds
    assert counts["shadow-linear"].contradictions == 0


def test_sampling_from_a_tree_is_autoregressive_sampling(pair: Pair) -> None:
    prompt = undecided(pair, pair.tokenizer.encode(prompt_set(1)["log"][0]))
    one = drawn(engine(pair, Settings("autoregressive")), prompt, 1.0, SAMPLES, 1)
    two = drawn(engine(pair, Settings("ddtree", 16)), prompt, 1.0, SAMPLES, 2)
    assert p_same(one, two) > 1e-3
