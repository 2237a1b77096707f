"""Drafted positions and brute-force answers that the tests compare with; hypothesis strategies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from ddtree_kernels.sglang_plugin.tree import capacity


@dataclass(frozen=True)
class Drafted:
    """log_probs, ids: [L][K], falling; budget: one that fits."""

    log_probs: list[list[float]]
    ids: list[list[int]]
    budget: int


@st.composite
def drafted(draw: st.DrawFn, most_depth: int = 4, most_ranks: int = 4, most_budget: int = 24) -> Drafted:
    """Any drafted block: probabilities that differ, tie, or are as low as they come."""
    depth, ranks = draw(st.integers(1, most_depth)), draw(st.integers(2, most_ranks))
    value = st.one_of(st.floats(-12, 0, allow_nan=False, width=32), st.sampled_from([-1.0, -2.0, -1e30, -math.inf]))
    log_probs = [sorted(draw(st.lists(value, min_size=ranks, max_size=ranks)), reverse=True) for _ in range(depth)]
    token = st.integers(0, 40)
    ids = [draw(st.lists(token, min_size=ranks, max_size=ranks, unique=True)) for _ in range(depth)]
    top = min(capacity(depth, ranks, most_budget), most_budget)
    return Drafted(log_probs, ids, draw(st.integers(depth, max(depth, top))))


def prefixes(block: Drafted) -> Iterator[tuple[float, tuple[int, ...]]]:
    """(log-probability, ranks) of every prefix there is."""
    for length in range(1, len(block.ids) + 1):
        for ranks in itertools.product(*(range(len(row)) for row in block.ids[:length])):
            yield sum(block.log_probs[d][r] for d, r in enumerate(ranks)), ranks


def ranks_of(
    parents: Sequence[int], tokens: Sequence[int], depths: Sequence[int], block: Drafted
) -> list[tuple[int, ...]]:
    """Each node's ranks from the root down; found by token, as tokens of one position differ."""
    out: list[tuple[int, ...]] = [()]
    for node in range(1, len(parents)):
        out.append((*out[parents[node]], block.ids[depths[node] - 1].index(tokens[node])))
    return out
