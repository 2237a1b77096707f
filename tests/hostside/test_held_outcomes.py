"""An outcome is told after a unit state that is at least as new."""

from __future__ import annotations

from typing import Any

from ddtree_console.hostside.watch_tx import HeldOutcomes

UNIT = "a.service"


def event(n: int, kind: str) -> dict[str, Any]:
    return {"n": n, "kind": kind}


def test_an_outcome_waits_for_a_question_asked_after_it() -> None:
    held = HeldOutcomes()
    held.asked += 1  # this question is on its way when the outcome is read: its answer may be older
    assert not held.holds(UNIT, event(0, "step"))
    assert held.holds(UNIT, event(1, "outcome"))
    assert held.waiting
    assert held.answered() == []
    held.asked += 1
    assert held.answered() == [(UNIT, event(1, "outcome"))]
    assert not held.waiting


def test_what_follows_an_outcome_stays_behind_it() -> None:
    held = HeldOutcomes()
    assert held.holds(UNIT, event(1, "outcome"))
    assert held.holds(UNIT, event(0, "begin"))
    assert not held.holds("b.service", event(0, "begin"))
    held.asked += 1
    assert [e["kind"] for _, e in held.answered()] == ["outcome", "begin"]


def test_a_systemd_that_does_not_answer_keeps_nothing_back() -> None:
    held = HeldOutcomes()
    held.holds(UNIT, event(1, "outcome"))
    assert held.all() == [(UNIT, event(1, "outcome"))]


def test_what_had_ended_before_the_watch_is_told_whole_and_before_the_states() -> None:
    held = HeldOutcomes()
    ended = [event(0, "begin"), event(1, "outcome")]
    assert not held.holds_all("b.service", [event(0, "begin")])
    assert held.holds_all(UNIT, ended)
    assert held.holds(UNIT, event(0, "begin"))
    assert held.ended() == [(UNIT, e) for e in [*ended, event(0, "begin")]]
    assert (held.ended(), held.waiting) == ([], False)
