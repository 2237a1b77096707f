"""Slots: each of a round's is either kept, in the order of its path, or freed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_kernels.sglang_plugin import slots


@given(st.integers(1, 12).flatmap(lambda n: st.tuples(
    st.just(n), st.lists(st.lists(st.integers(0, n - 1), unique=True), max_size=5))))  # fmt: skip
def test_every_slot_is_kept_or_freed_once(case: tuple[int, list[list[int]]]) -> None:
    width, paths = case
    kept, freed = slots.split(paths, width)
    assert sorted(kept + freed) == list(range(width * len(paths)))
    assert kept == [i * width + node for i, path in enumerate(paths) for node in path]


@pytest.mark.parametrize("path", [[0, 4], [-1], [0, 1, 1]])
def test_what_is_no_path(path: list[int]) -> None:
    with pytest.raises(ValueError, match="is none in a tree of 4 nodes"):
        slots.split([[0], path], 4)
