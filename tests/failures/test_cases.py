"""The scorer's figures, held in the suite: the given cases, other wordings, and that rules name cases that exist."""

from __future__ import annotations

import pytest

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
    assert len(ALL) == 67
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
