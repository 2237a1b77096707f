"""Service states: `ready` only with proof, and the most urgent said first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ddtree_console.domain.service_state import (
    DEGRADED,
    FAILED,
    LOST,
    MOVING,
    READY,
    STOPPED,
    progress,
    proved,
    service_state,
)
from ddtree_console.domain.snapshot import Gpu, GpuReport, HostSnapshot, HttpState, Listener, ServiceSnapshot, UnitState
from ddtree_console.domain.txview import Attempt, Line, TxView, Verdict

NOW = 500.0
HERE, OTHER = "a" * 32, "b" * 32
UP = HostSnapshot("h", "up", at=NOW)
ANSWERS = HttpState("/model_info", 200)
ACTIVE = UnitState("u.service", "loaded", "active", "running", invocation=HERE)


def tx(outcome: str = "committed", invocation: str = HERE, **more: Any) -> TxView:
    """An ended transaction."""
    attempts = more.pop("attempts", (Attempt("r2", invocation=invocation),))
    return TxView("t", outcome=outcome, attempts=attempts, **more)


def service(**more: Any) -> ServiceSnapshot:
    """Active, answering, listened to by ours."""
    base = ServiceSnapshot("h/s", ACTIVE, Listener("ours"), ANSWERS, at=NOW)
    return replace(base, **more)


def word(s: ServiceSnapshot, host: HostSnapshot = UP) -> tuple[str, int]:
    """Glyph and word, and the rank."""
    state = service_state(host, s, NOW, (0,))
    return state.text, state.rank


FAILED_TRY = Attempt("r2", verdict=Verdict(False, cause="no memory"), invocation=OTHER)


@pytest.mark.parametrize(
    ("seen", "want"),
    [
        (service(), ("◐ answers", MOVING)),  # active, listening and HTTP 200 are no proof
        (service(http=HttpState()), ("◐ starting", MOVING)),
        (service(tx=tx()), ("● ready", READY)),
        (service(tx=tx(invocation=OTHER)), ("◐ answers", MOVING)),  # the proof was of another start
        (service(tx=tx("went_back")), ("● ready", READY)),
        (service(tx=tx("went_way_back")), ("● ready", READY)),
        (service(tx=tx("refused")), ("◐ answers", MOVING)),
        (service(http=replace(ANSWERS, token=HERE)), ("● ready", READY)),
        (service(http=replace(ANSWERS, token=OTHER)), ("◐ answers", MOVING)),
        (service(http=replace(ANSWERS, tok_s=3.5)), ("● ready", READY)),
        (service(http=replace(ANSWERS, tok_s=0.0)), ("◐ answers", MOVING)),
        (service(tx=tx(), http=HttpState("/model_info", 500)), ("▲ degraded", DEGRADED)),
        (service(tx=tx(), http=HttpState(error="timed out")), ("▲ degraded", DEGRADED)),
        (service(tx=tx(), listener=Listener("nobody")), ("▲ degraded", DEGRADED)),
        (service(tx=tx(), listener=Listener("foreign", pid=7)), ("✖ port taken", FAILED)),
        (service(tx=tx("serving_uncommitted")), ("▲ not committed", DEGRADED)),
        (service(tx=tx("left", OTHER, attempts=(FAILED_TRY,))), ("✖ failed", FAILED)),
        (service(unit=replace(ACTIVE, active="failed", result="exit-code")), ("✖ failed", FAILED)),
        (service(unit=replace(ACTIVE, active="activating", sub="auto-restart")), ("✖ crash loop", FAILED)),
        (service(unit=replace(ACTIVE, active="inactive")), ("○ stopped", STOPPED)),
        (service(unit=replace(ACTIVE, active="inactive"), tx=tx("nothing_serves")), ("✖ nothing serves", FAILED)),
        (service(unit=replace(ACTIVE, active="inactive"), tx=tx("cut")), ("✖ cut by a reboot", FAILED)),
        (service(unit=replace(ACTIVE, load="not-found", active="inactive")), ("○ no unit", STOPPED)),
        (service(unit=replace(ACTIVE, load="bad-setting")), ("✖ unit bad-setting", FAILED)),
        (service(unit=None), ("? unknown", LOST)),
        (service(tx=tx(""), http=HttpState()), ("◐ starting", MOVING)),
        (service(tx=tx("", attempts=(FAILED_TRY, Attempt("r1")))), ("↻ going back", MOVING)),
        (service(tx=tx("", what="rollback")), ("↻ going back", MOVING)),
    ],
)
def test_the_word(seen: ServiceSnapshot, want: tuple[str, int]) -> None:
    assert word(seen) == want


@pytest.mark.parametrize("link", ["down", "refused", "connecting"])
def test_a_host_that_is_not_heard_claims_nothing(link: str) -> None:
    text, rank = word(service(tx=tx(), at=NOW - 14), HostSnapshot("h", link, "gone", at=NOW - 14))
    assert text.startswith("? ") and rank == LOST


def test_unreachable_ages_and_a_silent_watcher_is_stale() -> None:
    assert word(service(at=NOW - 14), replace(UP, link="down"))[0] == "? unreachable 14s"
    assert word(service(tx=tx(), at=NOW - 200))[0] == "? stale 3m"
    assert word(service(tx=tx(), at=NOW - 14))[0] == "● ready"


def test_a_lost_gpu_of_the_slot_degrades_and_another_one_does_not() -> None:
    lost = replace(UP, gpus=GpuReport("nvml", "", (Gpu(0, fault="GPU is lost"), Gpu(1))))
    assert service_state(lost, service(tx=tx()), NOW, (0,)).detail == "GPU 0: GPU is lost"
    assert service_state(lost, service(tx=tx()), NOW, (1,)).word == "ready"


def test_no_proof_without_a_unit_or_an_invocation() -> None:
    assert not proved(service(unit=None, tx=tx(), http=replace(ANSWERS, tok_s=9.0)))
    assert not proved(service(unit=replace(ACTIVE, invocation=""), tx=tx(invocation="")))


def test_progress_is_time_over_the_last_good_start_and_never_invented() -> None:
    rungs = (Line("invocation", "ok", 1.0, 100.0, 1.0), Line("listener", "run", None, 101.0, 99.0))
    running = TxView("t", t=150.0, attempts=(Attempt("r2", rungs=rungs),))
    assert progress(running) == 50
    assert progress(replace(running, t=900.0)) == 99
    unknown = (Line("listener", "run", None, 101.0),)
    assert progress(replace(running, attempts=(Attempt("r2", rungs=unknown),))) is None
    assert progress(TxView("t")) is None
