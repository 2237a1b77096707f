"""The reference of accept lengths, on one short answer of the tiny pair."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from ddtree_kernels.models import load_pair
from ddtree_kernels.tiny import path
from tests.gpu import reference
from tests.gpu.plugin_plan import prompts


def test_passes_of_an_answer() -> None:
    made, counts = reference.passes(load_pair(Path(path())), prompts(Path(path()))[0][0], 20)
    assert made == 20 and counts[15] == counts[reference.CHAIN]  # a tree of 15 is the chain
    assert 1 < counts[63] <= counts[31] < counts[reference.CHAIN] < made
