"""Is what a mode draws distributed as it must be: tokens drawn again and again at one place, Pearson's chi-square."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch

from ddtree_kernels.decode.engine import Engine
from ddtree_kernels.decode.round import Place, Round
from ddtree_kernels.decode.sampling import Sampling
from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.models.api import Pair
from tests.decode.pairs import engine

Two = tuple[int, int]
SELDOM = 10
"""Cells with fewer, in expectation or of both samples, count together."""


def drawn(decoder: Engine, prompt: list[int], temperature: float, samples: int, seed: int) -> Counter[Two]:
    """The two tokens that rounds emit behind the prompt, whose last token is the root; the prompt is read once."""
    decoder.choose.set(Sampling(temperature=temperature), seed)
    list(decoder._prefill(prompt[:-1]))
    root, found = torch.tensor(prompt[-1:], device=decoder.device), Counter[Two]()
    before = _kept(decoder.round.place, root)
    for _ in range(samples):
        _restore(decoder.round, before)
        got: list[int] = []
        for row in decoder._rounds(False):
            got += row[: row[-3]]
            if len(got) >= 2:
                break
        found[got[0], got[1]] += 1
    return found


def _kept(place: Place, root: torch.Tensor) -> Place:
    """A copy of the place behind a prompt, with this root."""

    def copy(value: int | torch.Tensor) -> int | torch.Tensor:
        return value if isinstance(value, int) else value.clone()

    return Place(copy(place.length), root, copy(place.before), None if place.pending is None else place.pending.clone())


def _restore(round_: Round, kept: Place) -> None:
    """Eagerly by another place; captured rounds read theirs where it lies."""
    place = round_.place
    if not round_.static:
        round_.place = Place(kept.length, kept.root, kept.before, kept.pending)
        return
    with torch.inference_mode():
        for name in ("length", "root", "before", "pending"):
            if getattr(place, name) is not None:
                getattr(place, name).copy_(getattr(kept, name))


def _p_value(chi: float, cells: int) -> float:
    half = torch.tensor([(cells - 1) / 2, chi / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def p_exact(found: Counter[Two], expected: Mapping[Two, float]) -> float:
    """That a sample is of these probabilities."""
    samples = sum(found.values())
    rare = {pair for pair, p in expected.items() if p * samples < SELDOM / 2}
    cells = [(found[pair], p * samples) for pair, p in expected.items() if pair not in rare]
    cells.append((sum(found[pair] for pair in rare), sum(expected[pair] for pair in rare) * samples))
    cells = [(have, want) for have, want in cells if want > 0]
    return _p_value(sum((have - want) ** 2 / want for have, want in cells), len(cells))


def p_same(one: Counter[Two], two: Counter[Two]) -> float:
    """That two samples of equal size are of one distribution. ValueError where all of it is one cell."""
    often = [key for key in one | two if one[key] + two[key] >= SELDOM]
    if len(often) < 3:
        raise ValueError(f"too sure a place: every rule would pass: {one}")
    cells = [(one[key], two[key]) for key in often]
    rest = sum(one.values()) - sum(a for a, _ in cells), sum(two.values()) - sum(b for _, b in cells)
    cells += [rest] if sum(rest) else []
    return _p_value(sum((a - b) ** 2 / (a + b) for a, b in cells), len(cells))


def undecided(pair: Pair, prompt: list[int]) -> list[int]:
    """The prompt and as much of its greedy answer as leads to the place where the target is least sure."""
    decoder = engine(pair, Settings("ddtree", 16), 512)
    tokens = [*prompt, *(t for part in decoder.generate(prompt, Sampling(60, temperature=0), 0) for t in part)]
    with torch.inference_mode():
        at = torch.arange(len(tokens), device=pair.target.device)
        run = torch.tensor(tokens, device=pair.target.device)
        hidden, _ = pair.target.forward(run, at, decoder.round.cache, 0, features=False)
        best = torch.softmax(pair.target.logits(hidden), -1).amax(-1)
    return tokens[: len(prompt) + int(best[len(prompt) :].argmin()) + 1]
