"""The `ddtree` section in server info, in made-up answers; test_plugin_recordings reads those of real runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.domain.engines import ddtree_info
from ddtree_console.domain.engines.ddtree_info import TreeInfo

SHADOW: dict[str, Any] = {
    "mode": "shadow", "budget": 31, "block": 16, "release": "0.5.12", "rounds": 1000, "accept_length": 3.1,
    "tree_length": 4.41, "chain_length": 3.1, "longer_rounds": 612, "gained": 1310, "shorter_rounds": 0,
    "astray_rounds": 0, "steps": 500, "ms": {"draft": 1.2},
}  # fmt: skip


def answer(**more: Any) -> dict[str, Any]:
    """As /server_info of 0.5.12 gives it: the scheduler's own state beside the arguments."""
    return {"speculative_algorithm": "DDTREE", "internal_states": [{"ddtree": {**SHADOW, **more}}]}


def read(**more: Any) -> TreeInfo:
    found = ddtree_info.read(answer(**more))
    assert found is not None
    return found


def test_the_shadow_says_what_the_tree_would_save() -> None:
    found = read()
    assert ddtree_info.verdict(found) == ("the tree would have saved 1.31 tokens a round; enable with `e`", "good")
    assert ddtree_info.summary(found) == "shadow · budget 31 · accept 3.10 · tree 4.41, chain 3.10"


@pytest.mark.parametrize(
    ("more", "said", "style"),
    [
        ({"rounds": 0, "accept_length": None, "tree_length": None, "chain_length": None}, "no round yet", "dim"),
        ({"rounds": 100, "gained": 131}, "1.31 tokens a round, after only 100 rounds; enable with `e`", "good"),
        ({"gained": 0}, "the tree would have saved nothing: do not enable it", "dim"),
        ({"astray_rounds": 2}, "2 rounds were not the chain's or better: that must be 0", "bad"),
        ({"shorter_rounds": 1, "mode": "tree"}, "1 rounds were not the chain's", "bad"),
        ({"mode": "tree"}, "the tree saves 1.31 tokens a round", "good"),
        ({"gained": 0, "budget": 15}, "a budget of 15 with blocks of 16 is the chain alone: raise it with `e`", "warn"),
        ({"mode": "tree", "gained": 1}, "the tree saves nothing", "dim"),
    ],
)
def test_other_verdicts(more: dict[str, Any], said: str, style: str) -> None:
    words, colour = ddtree_info.verdict(read(**more))
    assert said in words and colour == style


@pytest.mark.parametrize(
    "info",
    [{}, {"internal_states": None}, {"internal_states": [None, {}]}, {"internal_states": [{"ddtree": "x"}]},
     {"internal_states": [{"ddtree": {"mode": "other"}}]}, {"ddtree": None}],
)  # fmt: skip
def test_no_section(info: dict[str, Any]) -> None:
    assert ddtree_info.read(info) is None


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda more: st.lists(more, max_size=3) | st.dictionaries(st.text(max_size=5), more, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(SHADOW)), anything, max_size=8), st.sampled_from(["tree", "shadow"]))
def test_any_value_of_a_host_is_read(section: dict[str, Any], mode: str) -> None:
    found = ddtree_info.read({"internal_states": [{"ddtree": {**section, "mode": mode}}]})
    assert found is not None and found.rounds >= 0
    words, style = ddtree_info.verdict(found)
    assert words and style in ("good", "bad", "warn", "dim") and "\n" not in ddtree_info.summary(found)
