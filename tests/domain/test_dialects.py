"""Speculative intent to the flags of each build, and what a release makes of graph flags."""

from __future__ import annotations

from typing import Any

import pytest

from ddtree_console.domain.engines import dialects
from ddtree_console.domain.engines.base import DialectError
from ddtree_console.domain.spec import Speculative

DRAFT = "/models/draft"
TREE = {"speculative-algorithm": "DDTREE", "speculative-draft-model-path": DRAFT}
CHAIN = {"speculative-algorithm": "DFLASH", "speculative-draft-model-path": DRAFT}
WIDTH = {"speculative-num-draft-tokens": 16}


@pytest.mark.parametrize(
    ("dialect", "flags", "env"),
    [
        ("pr29907", {**TREE, "speculative-ddtree-budget": 15}, {}),
        ("rancy-wang", {**TREE, "speculative-ddtree-budget": 15}, {}),
        ("pr31069", {**CHAIN, "speculative-dflash-tree-verify": True, **WIDTH}, {}),
        ("db-guo", {**CHAIN, "speculative-dflash-enable-ddtree": True, **WIDTH}, {}),
        ("plugin", {**TREE, **WIDTH}, {"DDTREE_MODE": "tree", "DDTREE_BUDGET": "15"}),
        ("plugin-0.5.12", {**TREE, **WIDTH}, {"DDTREE_MODE": "tree", "DDTREE_BUDGET": "15"}),
    ],
)
def test_each_tree_dialect(dialect: str, flags: dict[str, Any], env: dict[str, str]) -> None:
    spelling = dialects.spell(dialect, Speculative("ddtree", budget=15, draft=DRAFT))
    assert (dict(spelling.flags), dict(spelling.env)) == (flags, env)


@pytest.mark.parametrize("dialect", [None, "stock-0.5.11", "stock-0.5.23", "pr29907", "plugin"])
def test_linear_is_dflash_everywhere(dialect: str | None) -> None:
    assert dialects.spell(dialect, Speculative("linear", draft=DRAFT)).flags == CHAIN
    assert dialects.spell(dialect, Speculative("linear", budget=15, draft=DRAFT)).flags == {**CHAIN, **WIDTH}


@pytest.mark.parametrize("intent", [None, Speculative()])
@pytest.mark.parametrize("dialect", [None, "stock-0.5.3", "db-guo"])
def test_no_speculation_needs_no_spelling(dialect: str | None, intent: Speculative | None) -> None:
    assert dialects.spell(dialect, intent) == dialects.Spelling()


def test_shadow_only_where_a_dialect_has_it() -> None:
    shadow = Speculative("ddtree", True, 15, DRAFT)
    assert dialects.spell("plugin", shadow).env["DDTREE_MODE"] == "shadow"
    with pytest.raises(DialectError, match=r"no shadow mode; dialects that have: plugin"):
        dialects.spell("pr29907", shadow)


@pytest.mark.parametrize(
    ("dialect", "intent", "reason"),
    [
        (None, Speculative("ddtree", draft=DRAFT), "dialects that can: pr29907, pr31069, db-guo, rancy-wang, plugin"),
        ("stock-0.5.12", Speculative("ddtree", draft=DRAFT), "stock-0.5.12 cannot do ddtree"),
        ("stock-0.5.10", Speculative("linear", draft=DRAFT), "no DFLASH, which came with 0.5.11"),
        ("stock-0.5.24", Speculative("linear", draft=DRAFT), "is not known; known are"),
        ("plugin-0.5.11", Speculative("ddtree", draft=DRAFT), "is not known; known are"),
        ("plugin", Speculative("linear", shadow=True, draft=DRAFT), "shadow belongs to kind ddtree"),
        ("plugin", Speculative("ddtree"), "needs a draft model"),
        ("plugin", Speculative("ddtree", budget=0, draft=DRAFT), "below 1"),
        ("plugin", Speculative("tree", draft=DRAFT), "is none of none, linear, ddtree"),
    ],
)
def test_no_match_says_which_can(dialect: str | None, intent: Speculative, reason: str) -> None:
    with pytest.raises(DialectError, match=reason):
        dialects.spell(dialect, intent)


NO_GRAPH = {"disable-cuda-graph": True}


@pytest.mark.parametrize(
    ("release", "flags", "words"),
    [
        (6, NO_GRAPH, ()),
        (8, NO_GRAPH, ()),
        (8, {**NO_GRAPH, "enable-piecewise-cuda-graph": True}, ("still captured", "leave --enable")),
        (12, NO_GRAPH, ("still captured", "--disable-piecewise-cuda-graph")),
        (12, {"disable-cuda-graph": False}, ()),
        (12, {**NO_GRAPH, "disable-piecewise-cuda-graph": True}, ()),
        (14, NO_GRAPH, ()),
        (20, {"disable-piecewise-cuda-graph": True}, ("gone since 0.5.20", "--disable-prefill-cuda-graph")),
        (19, {"disable-piecewise-cuda-graph": True}, ()),
        (23, {"cuda-graph-max-bs": 8}, ("exit 2", "--cuda-graph-max-bs-decode")),
        (12, {"disable-prefill-cuda-graph": True}, ("came with 0.5.14", "--disable-piecewise-cuda-graph")),
    ],
)
def test_graph_flags_by_release(release: int, flags: dict[str, Any], words: tuple[str, ...]) -> None:
    found = dialects.flag_warnings(f"stock-0.5.{release}", flags)
    assert len(found) == (1 if words else 0)
    assert all(word in found[0] for word in words)
    assert dialects.flag_warnings(None, flags) == () == dialects.flag_warnings("db-guo", flags)


@pytest.mark.parametrize("release", [13, 14, 23])
def test_the_plug_in_is_for_the_releases_that_it_was_made_for(release: int) -> None:
    with pytest.raises(DialectError, match=rf"'plugin-0\.5\.{release}' is not known; known are .*, plugin-0\.5\.12$"):
        dialects.find(f"plugin-0.5.{release}")
