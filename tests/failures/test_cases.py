"""The scorer's figures, held in the suite: the given cases, other wordings, and that rules name cases that exist."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.domain.findings.conftest import builtin
from tests.failures.score import Case, cases, contradictions, directions, found, judge
from tests.failures.wordings import log, wordings

ALL = cases()


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.id)
def test_a_case_is_diagnosed(case: Case) -> None:
    assert judge(case, builtin()) == []


@pytest.mark.parametrize(("slug", "row"), list(wordings()), ids=lambda value: value[:60])
def test_another_wording_of_the_cause(slug: str, row: str) -> None:
    rows = log(row)
    first = found(rows, builtin())[0]
    assert first.slug == slug
    assert first.fatal or row.startswith("s:")
    # what comes before the line that tells it is no reason to end the wait
    for n in range(1, len(rows) - 2):
        assert not [f for f in found(rows[:n], builtin()) if f.fatal and f.slug != slug]


def test_the_cases_are_all_there() -> None:
    assert len(ALL) == 68
    assert {case.kind for case in ALL} == {"failure", "non-failure", "hang"}


def test_every_rule_names_cases_that_exist() -> None:
    known = {case.id for case in ALL}
    for rule in builtin().rules:
        assert rule.cases and set(rule.cases) <= known, rule.id


def test_the_scorer_sees_a_contradiction() -> None:
    assert directions("lower --mem-fraction-static by 0.02; raise --dist-timeout") == {
        "mem-fraction-static": "lower",
        "dist-timeout": "raise",
    }
    pool = next(case for case in ALL if case.id == "kv-gemma-awq-24g")
    first = found(pool.lines, builtin())[0]
    assert first.remedies and not list(contradictions(pool, first))
    capture = next(case for case in ALL if case.id == "capture-oom-h20")
    assert list(contradictions(capture, first)) == ["raise --mem-fraction-static against lower"]


BENIGN = yaml.safe_load((Path(__file__).parent / "benign.yaml").read_text("utf-8"))
START = "[2026-01-01 10:00:00] server_args=ServerArgs(model_path='/models/m', tp_size=1)"


@pytest.mark.parametrize("line", BENIGN, ids=lambda line: line[:50])
def test_a_line_of_a_server_that_goes_on_is_no_failure(line: str) -> None:
    for rows in ([line], [START, line], [START, line, "[2026-01-01 10:00:01 TP0] Load weight begin. avail mem=78 GB"]):
        assert not [f for f in found(rows, builtin()) if f.fatal or f.slug == "unknown"]
    rows = [START, *BENIGN, "[2026-01-01 10:00:01 TP0] Load weight begin. avail mem=78 GB"]
    assert found(rows, builtin()) == ()


def test_such_lines_hide_no_cause() -> None:
    cause = "x: RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
    first, *rest = log(cause)
    assert found([first, *BENIGN, *rest, *BENIGN], builtin())[0].slug == "kv-budget-too-small"
