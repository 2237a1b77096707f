"""Sampled decoding keeps the target's distribution, in every mode; and what the filters keep."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ddtree_kernels.decode.sampling import Chooser, Sampling
from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.models.api import Pair
from tests.decode.distribution import drawn, p_exact
from tests.decode.pairs import engine, pair

PROMPT = [1, 2, 3, 0, 5]
SAMPLES = 180


def exact(one: Pair, temperature: float) -> dict[tuple[int, int], float]:
    """Probability of every two tokens behind the prompt, from the target's forward passes alone."""
    cache = engine(one, Settings("autoregressive")).round.cache

    def after(tokens: list[int]) -> list[float]:
        hidden, _ = one.target.forward(torch.tensor(tokens), torch.arange(len(tokens)), cache, 0, features=False)
        found: list[float] = torch.softmax(one.target.logits(hidden[-1]) / temperature, -1).tolist()
        return found

    first = after(PROMPT)
    return {(a, b): p * q for a, p in enumerate(first) for b, q in enumerate(after([*PROMPT, a]))}


@pytest.mark.parametrize(
    ("settings", "temperature"),
    [
        (Settings("linear"), 1.0),
        (Settings("ddtree", 8), 1.0),
        (Settings("ddtree", 12, spine=True, draft_temperature=0.5), 2.0),
        (Settings("shadow-linear", 8), 1.0),
    ],
    ids=lambda value: f"{value.mode}-{value.budget}" if isinstance(value, Settings) else str(value),
)
def test_the_target_s_distribution_is_kept(settings: Settings, temperature: float) -> None:
    one = pair(scale=0.25, layers=1)
    expected = exact(one, temperature)
    assert max(expected.values()) < 0.4, "too sure a target: every rule would pass"
    assert p_exact(drawn(engine(one, settings), PROMPT, temperature, SAMPLES, 12), expected) > 1e-3


def test_the_test_sees_a_wrong_temperature() -> None:
    one = pair(scale=0.25, layers=1)
    assert p_exact(drawn(engine(one, Settings("ddtree", 8)), PROMPT, 2.5, SAMPLES, 12), exact(one, 1.0)) < 1e-5


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"top_k": 2}, {0, 1}),
        ({"top_p": 0.7}, {0, 1}),
        ({"top_p": 0.01}, {0}),
        ({"min_p": 0.5}, {0, 1}),
        ({"top_k": 3, "top_p": 0.45}, {0}),
        ({}, {0, 1, 2, 3}),
    ],
)
def test_filters_keep_what_they_say(options: dict[str, Any], kept: set[int]) -> None:
    choose = Chooser(torch.device("cpu"))
    choose.set(Sampling(temperature=1.0, **options), 3)
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05])).expand(2000, 4)
    assert set(choose(logits).tolist()) == kept


def test_a_seed_gives_the_same_tokens_again() -> None:
    decoder = engine(pair(), Settings("ddtree", 8))

    def run(seed: int) -> list[int]:
        return [t for part in decoder.generate(PROMPT, Sampling(30, temperature=1.5), seed) for t in part]

    assert run(5) == run(5)
    assert run(5) != run(6)
