"""The shipped pair: equal answers in every mode and type, and sampling as autoregressive's. equality.py does more."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from ddtree_kernels.decode.engine import Counts, Engine
from ddtree_kernels.decode.round import Place
from ddtree_kernels.decode.sampling import Sampling
from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.models import load_pair
from ddtree_kernels.models.api import Pair
from ddtree_kernels.tiny.prompts import prompt_set
from tests.decode.equality import BOUND, answer, compare
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


def undecided(pair: Pair, prompt: list[int]) -> list[int]:
    """The prompt and as much of its greedy answer as leads to the place where the target is least sure."""
    decoder = engine(pair, Settings("ddtree", 16), 512)
    tokens = [*prompt, *answer(decoder, prompt, 60, Counts())]
    with torch.inference_mode():
        hidden, _ = pair.target.forward(
            torch.tensor(tokens), torch.arange(len(tokens)), decoder.round.cache, 0, features=False
        )
        best = torch.softmax(pair.target.logits(hidden), -1).amax(-1)
    return tokens[: len(prompt) + int(best[len(prompt) :].argmin()) + 1]


def drawn(decoder: Engine, prompt: list[int], seed: int) -> Counter[tuple[int, ...]]:
    """The two tokens behind the prompt's last one, drawn again and again; the prompt is read once."""
    decoder.choose.set(Sampling(temperature=1.0), seed)
    list(decoder._prefill(prompt[:-1]))
    length, root, found = len(prompt) - 1, torch.tensor(prompt[-1:]), Counter[tuple[int, ...]]()
    for _ in range(SAMPLES):
        decoder.round.place = Place(length, root, length, None)
        got: list[int] = []
        for row in decoder._rounds(False):
            got += row[: row[-3]]
            if len(got) >= 2:
                break
        found[got[0], got[1]] += 1
    return found


def test_sampling_from_a_tree_is_autoregressive_sampling(pair: Pair) -> None:
    """Two samples of equal size, Pearson's chi-square; what both have seldom counts together."""
    prompt = undecided(pair, pair.tokenizer.encode(prompt_set(1)["log"][0]))
    one = drawn(engine(pair, Settings("autoregressive")), prompt, 1)
    two = drawn(engine(pair, Settings("ddtree", 16)), prompt, 2)
    often = [key for key in one | two if one[key] + two[key] >= 10]
    assert len(often) >= 3, "too sure a place: every rule would pass"
    cells = [(one[key], two[key]) for key in often]
    cells.append((SAMPLES - sum(a for a, _ in cells), SAMPLES - sum(b for _, b in cells)))
    chi = sum((a - b) ** 2 / (a + b) for a, b in cells if a + b)
    half = torch.tensor([(len(cells) - 1) / 2, chi / 2], dtype=torch.float64)
    assert float(torch.special.gammaincc(half[0], half[1])) > 1e-3, cells
