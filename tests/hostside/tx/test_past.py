"""What earlier transactions tried, from the history and the releases that a host keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddtree_console.domain.plan import Candidate
from ddtree_console.hostside import kept, releases, tx_past
from ddtree_console.hostside.roots import Roots
from ddtree_console.hostside.tx_wait import ranks_of

UNIT = "q.service"


def candidate(model: str = "/m", **flags: Any) -> Candidate:
    names = {name.replace("_", "-"): value for name, value in flags.items()}
    return Candidate("[Service]\n", "p", {"model": model, "flags": names}, set_flags=names)


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """A host with three attempts: another model, a pool that was too small, one that served."""
    found = Roots(run=str(tmp_path / "run"), var=str(tmp_path / "var"), etc=str(tmp_path / "etc"))
    rows: list[tuple[Candidate, dict[str, Any]]] = [
        (candidate("/other", mem_fraction_static=0.5), {"finding": {"slug": "kv-budget-too-small"}}),
        (candidate(mem_fraction_static=0.88), {"finding": {"slug": "kv-budget-too-small"}, "furthest": "kv cache"}),
        (candidate(mem_fraction_static=0.9, tp_size=2), {"finding": {}, "outcome": "committed"}),
    ]
    for n, (one, more) in enumerate(rows, 1):
        kept.keep(found, UNIT, one, {})
        line = {"tx": f"t{n}", "what": "deploy", "target": f"r{n}", "outcome": "went_back", **more}
        releases.append_history(found, UNIT, line)
    releases.append_history(found, UNIT, {"tx": "t4", "what": "rollback", "target": "r1", "outcome": "committed"})
    releases.append_history(found, UNIT, {"tx": "t5", "what": "deploy", "target": "r9", "outcome": "refused"})
    return found


def test_attempts_of_the_same_model_oldest_first(roots: Roots) -> None:
    tried = tx_past.attempts(roots, UNIT, "now", candidate(mem_fraction_static=0.93))
    assert [(a.flags["mem-fraction-static"], a.slug, a.label) for a in tried] == [
        (0.88, "kv-budget-too-small", "r2 p"),
        (0.9, "", "r3 p"),
    ]
    assert tried[0].phase == "kv cache"
    assert tx_past.attempts(roots, "other.service", "now", candidate()) == []


def test_what_was_edited_is_against_the_newest_deployment_and_not_this_one(roots: Roots) -> None:
    now = candidate(mem_fraction_static=0.9, cuda_graph_max_bs=16)
    past = tx_past.before(roots, UNIT, "now")
    assert tx_past.edited_flags(past, now) == ("cuda-graph-max-bs", "tp-size")
    assert tx_past.edited_lines(past, now) == ["flag tp-size 2 -> unset", "flag cuda-graph-max-bs unset -> 16"]
    assert tx_past.edited_flags(tx_past.before(roots, UNIT, "t3"), now)[0] == "mem-fraction-static"
    assert tx_past.edited_flags(tx_past.before(roots, "other.service", "now"), now) == ()


def test_torn_history_is_left_out(roots: Roots) -> None:
    with releases.history(roots, UNIT).open("a") as file:
        file.write('{"tx":"t9","what":"dep')
    assert len(tx_past.attempts(roots, UNIT, "now", candidate())) == 2


@pytest.mark.parametrize(
    ("flags", "ranks"),
    [
        ({}, 1),
        ({"tp_size": 2}, 2),
        ({"tensor_parallel_size": 4, "pp_size": 2}, 8),
        ({"tp": 4, "dp_size": 2}, 8),
        ({"tp": 4, "dp_size": 2, "enable_dp_attention": True}, 4),
        ({"tp": "many"}, 1),
    ],
)
def test_schedulers_of_a_launch(flags: dict[str, Any], ranks: int) -> None:
    assert ranks_of(candidate(**flags)) == ranks
