"""The judgements of the GPU plan, on made-up answers; and that its command line works where no GPU is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import compare

HERE = Path(__file__).parent


def test_divergences_pass_only_at_near_ties() -> None:
    wanted = [[1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3]]
    margins = [[1.0, 0.1, 1.0]] * 4
    found = compare.judged(wanted, [[1, 2, 3], [1, 9, 9], [1, 2, 3], [1, 2, 3]], margins)
    assert found == {"ok": True, "same": 3, "near_ties": [{"prompt": 1, "position": 1, "margin": 0.1}], "wrong": []}
    found = compare.judged(wanted, [[1, 2, 3], [1, 2, 9], [9, 2, 3], [1, 2]], margins)
    assert not found["ok"] and [(r["prompt"], r["position"]) for r in found["wrong"]] == [(1, 2), (2, 0), (3, None)]


def test_margins_of_an_answer() -> None:
    rows = [[[-0.1, 5, None], [-2.6, 7, None]], [[-0.7, 5, None], [-0.7, 6, None]], [[0.0, 1, None]]]
    assert compare.margins_of({"meta_info": {"output_top_logprobs": rows}}) == [2.5, 0.0, float("inf")]
    assert compare.margins_of({}) == []


def test_distance_of_samples() -> None:
    assert compare.distance([1, 1, 2, 2], [1, 2, 1, 2]) == 0.0
    assert compare.distance([1] * 4, [2] * 3) == 1.0
    assert compare.distance([1, 1, 1, 2], [1, 1, 2, 2]) == pytest.approx(0.25)


def test_the_speed_table() -> None:
    def run(speed: float, accept: float) -> dict[str, float]:
        return {"tok_s": speed, "accept": accept, "step_ms": 4.0}

    cells: dict[Any, Any] = {
        ("ar", 1): [run(100, 1)], ("dflash", 1): [run(200, 3), run(220, 3)], ("tree-15", 1): [run(250, 4)],
        ("tree-31", 1): [run(280, 4.4), run(287, 4.4)],
    }  # fmt: skip
    assert compare.best_ratio(cells, 1) == pytest.approx(1.35) and compare.best_ratio(cells, 8) == 0.0
    rows = compare.table(cells)
    assert rows[3] == "| dflash | 1 | 210 | 1.00x | 3.00 | 4.00 | 2 |" and len(rows) == 6


def test_a_step_that_is_none_is_told() -> None:
    argv = [sys.executable, str(HERE / "plugin_plan.py"), "/nowhere", "--steps", "tokens,warp"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no step warp; steps are smoke, table, start, tokens, speed" in done.stderr
