"""The figures of server info, from rounds counted by hand."""

from __future__ import annotations

import json

from ddtree_kernels.sglang_plugin.counters import PHASES, Counters


def test_before_any_round() -> None:
    section = Counters("shadow", 31, 16, "0.5.12").section()
    assert (section["rounds"], section["accept_length"], section["ms"]) == (0, None, {})
    assert json.loads(json.dumps(section)) == section


def test_rounds() -> None:
    counters = Counters("shadow", 31, 16)
    counters.see([5, 6, 7], [5], 1)  # the tree would have given two more
    counters.see([5, 6], [5, 6], 2)
    counters.see([5, 6, 7, 8], [5, 6, 7], 2, ended=True)  # stopped inside the path
    counters.spent(dict.fromkeys(PHASES, 0.002))
    counters.spent({"draft": 0.004})
    section = counters.section()
    assert (section["rounds"], section["longer_rounds"], section["gained"]) == (3, 1, 2)
    assert (section["tree_length"], section["chain_length"], section["accept_length"]) == (2.3333, 1.6667, 1.6667)
    assert (section["shorter_rounds"], section["astray_rounds"]) == (0, 0)
    assert section["steps"] == 2 and section["ms"]["draft"] == 3.0 and section["ms"]["walk"] == 1.0
    assert "accept length 1.6667 (tree 2.3333, chain 1.6667)" in counters.line()


def test_an_end_gives_the_tree_no_gain_that_nobody_gets() -> None:
    counters = Counters("tree", 31, 16)
    counters.see([5, 6, 7, 8], [5], 1, ended=True)  # the answer had room for one token
    counters.see([5, 6, 7], [5], 2, ended=True)
    section = counters.section()
    assert (section["gained"], section["longer_rounds"], section["shorter_rounds"]) == (1, 1, 0)
    assert section["tree_length"] == section["accept_length"] == 1.5


def test_what_must_stay_0_would_show() -> None:
    counters = Counters("tree", 31, 16)
    counters.see([5], [5, 6], 1)
    counters.see([5, 9], [5, 6], 2)
    section = counters.section()
    assert (section["shorter_rounds"], section["astray_rounds"]) == (1, 2)


def test_gpu_time_is_of_the_steps_that_were_measured() -> None:
    counters = Counters("tree", 31, 16)
    for parts in ({}, {"draft": 0.2, "tree": 0.01, "target": 0.3}, {}, {"draft": 0.4, "tree": 0.03, "target": 0.5}):
        counters.measured(parts)
        counters.spent({"walk": 0.001})
    assert counters.section()["gpu_ms"] == {"draft": 0.3, "tree": 0.02, "target": 0.4}
