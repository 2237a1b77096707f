"""The decode bench on a CPU: its table, and that a part that fails stops nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ddtree_kernels.bench.decode import Report, main
from ddtree_kernels.bench.decode_run import Tally
from ddtree_kernels.bench.decode_table import table
from ddtree_kernels.bench.decode_ways import settings_of, ways
from ddtree_kernels.decode.engine import Counts


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU it takes minutes")
def test_the_table_of_a_short_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "table.md"
    assert main(["--prompts", "1", "--tokens", "6", "--budgets", "8", "--repeats", "2", "--out", str(out)]) == 0
    text = out.read_text("utf-8")
    assert [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")][:5] == [
        "mode", "autoregressive", "linear", "ddtree 8", "shadow-linear 32",
    ]  # fmt: skip
    printed = capsys.readouterr()
    assert printed.out == text, "what is printed is what is kept"
    assert printed.err.count("over all prompts and ways") == 2
    assert "0 contradictions" in text and "'ddtree 8': 0" in text


def test_a_part_that_fails_is_told_and_passed_by(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(tmp_path / "out")

    def fail() -> None:
        raise ValueError("no such kernel\nmore")

    report.attempt("parts of linear", fail)
    report(["after"])
    assert (tmp_path / "out").read_text() == "parts of linear failed: ValueError: no such kernel\nafter\n"
    assert report.failures == 1 and "Traceback" in capsys.readouterr().err


def test_figures_of_a_tally() -> None:
    one = Tally(tokens=30, seconds=0.5, counts=Counts(rounds=10, committed=32), graph=0.4)
    one.add(Tally(tokens=30, seconds=0.5, counts=Counts(rounds=10, committed=28), graph=0.5))
    assert (one.speed, one.round_ms, one.counts.accept_length) == (60, 50, 3)
    assert one.graph_ms == pytest.approx(45)
    one.passes = [0.5, 0.4]
    one.add(Tally(passes=[0.5, 0.5]))
    assert one.passes == [1.0, 0.9] and one.noise == pytest.approx(0.1 / 0.95)
    row = table({"autoregressive": {"log": Tally(10, 1.0)}, "linear": {"log": one}}, {"linear": {"draft": 1.5}})[3]
    assert row.startswith("| linear | 60 | 6.00 | 1.00 | 3.00 | 50.000 | 1.500 | – |")


def test_a_way_s_name_says_its_settings() -> None:
    assert all(settings_of(way) == settings for way, settings in ways((8, 64)).items())
