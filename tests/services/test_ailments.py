"""What ails a running service: the fold over what its host and its server say, with a clock of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.domain.findings.types import Finding
from ddtree_console.domain.service_state import DEGRADED, service_state
from ddtree_console.domain.snapshot import (
    Gpu,
    GpuProcess,
    HostSnapshot,
    HttpState,
    Listener,
    ReleaseState,
    ServiceSnapshot,
    UnitState,
)
from ddtree_console.domain.txview import Attempt, TxView, Verdict
from ddtree_console.services.ailments import Ailments, Seen, fold

UNIT = UnitState("s1.service", load="loaded", active="active", sub="running", invocation="i1", main_pid=7, since=1000.0)
HTTP = HttpState(path="/v1/models", status=200, token="i1")
LOADED = replace(HTTP, running=4, tok_s=800.0, accept_len=3.1)


def service(http: HttpState = HTTP, **more: Any) -> ServiceSnapshot:
    values: dict[str, Any] = {"unit": UNIT, "listener": Listener("ours"), "at": 0.0, **more}
    return ServiceSnapshot("h1/s1", http=http, **values)


def look(http: HttpState = HTTP, **more: Any) -> Seen:
    own = {key: more.pop(key) for key in ("unit", "tx", "release") if key in more}
    return Seen(**{"service": service(http, **own), "now": 50.0, "wall": 90_000.0, **more})


def found(seen: Seen) -> Finding | None:
    return fold(Ailments(), seen).finding


def over_time(steps: list[tuple[int, HttpState]], old: Ailments | None = None, begin: float = 0.0) -> Ailments:
    """Five seconds a look, so many looks of each kind."""
    state, now = old or Ailments(), begin
    for count, http in steps:
        for _ in range(count):
            now += 5.0
            state = fold(state, look(http, now=now))
    return state


def test_a_service_that_is_well_or_idle_has_nothing() -> None:
    assert found(look()) is None
    assert found(look(ranks={"alive": ["0", "1"], "dead": [], "frozen": []})) is None
    idle = replace(HTTP, running=0, tok_s=0.0, accept_len=1.0)
    assert over_time([(100, LOADED), (500, idle), (3, LOADED), (500, idle)]).finding is None


@pytest.mark.parametrize(("how", "word"), [("dead", "died"), ("frozen", "is stopped")])
def test_a_scheduler_that_is_gone_behind_a_server_that_answers(how: str, word: str) -> None:
    finding = found(look(ranks={"alive": ["0"], how: ["1"]}))
    assert finding is not None
    assert finding.slug == "zombie-service"
    assert f"scheduler of rank 1 {word}" in finding.summary
    assert "/v1/models answers 200" in finding.summary
    assert finding.remedies[0].command == "systemctl restart s1.service"
    state = service_state(HostSnapshot("h1", link="up", at=0.0), service(finding=finding), 1.0)
    assert (state.text, state.rank, state.detail) == ("▲ degraded", DEGRADED, finding.summary)


def test_a_hang_seen_by_the_probe_is_a_zombie_too() -> None:
    finding = found(look(replace(HTTP, error="hung: its scheduler is silent")))
    assert finding is not None
    assert finding.slug == "zombie-service"


def test_a_start_is_not_judged_nor_is_a_service_that_stops() -> None:
    dead = {"alive": [], "dead": ["0"]}
    assert found(look(HttpState(), ranks=dead)) is None, "nothing answered yet: the transaction tells"
    assert found(look(ranks=dead, tx=TxView("t"))) is None
    assert found(look(ranks=dead, unit=replace(UNIT, active="deactivating"))) is None


def test_a_lost_gpu_of_its_own() -> None:
    lost = Gpu(0, "A6000", fault="GPU lost: it fell off the bus; reboot the host")
    finding = found(look(gpus=[lost]))
    assert finding is not None
    assert finding.slug == "gpu-lost"
    assert "GPU 0" in finding.summary


def test_an_xid_of_this_start_and_this_process_only() -> None:
    gpu = Gpu(
        0, pci="00000000:41:00.0", processes=(GpuProcess(21, unit="s1.service"), GpuProcess(30, unit="other.service"))
    )
    row = {"pci": "0000:41:00", "code": 94, "pid": 21, "wall": 2000.0, "text": "NVRM: Xid (PCI:0000:41:00): 94"}
    finding = found(look(gpus=[gpu], xids=[row]))
    assert finding is not None
    assert (finding.slug, finding.evidence[0].text) == ("gpu-xid", row["text"])
    assert found(look(gpus=[gpu], xids=[{**row, "pid": 0, "code": 79}])) is not None, "of its card, without a process"
    assert found(look(gpus=[gpu], xids=[{**row, "pid": 0, "pci": "0000:42:00"}])) is None
    for other in ({"wall": 900.0}, {"pid": 30}, {"code": 31}, {"code": "94"}):
        assert found(look(gpus=[gpu], xids=[{**row, **other}])) is None, other


def test_restarts_are_told_for_a_while() -> None:
    again = replace(UNIT, restarts=2, since=89_500.0)
    finding = found(look(unit=again))
    assert finding is not None
    assert finding.slug == "restarts"
    assert "2 times" in finding.summary
    assert found(look(unit=again, wall=91_000.0)) is None


def test_throughput_against_its_own_history_at_the_same_load() -> None:
    slow = replace(LOADED, tok_s=200.0)
    well = over_time([(120, LOADED)])
    assert over_time([(6, slow)], well, 600).finding is None, "half a minute is no collapse"
    ill = over_time([(14, slow)], well, 600)
    assert ill.finding is not None
    assert ill.finding.slug == "throughput-collapsed"
    assert "200 tokens a second" in ill.finding.summary
    assert "800" in ill.finding.summary
    still = over_time([(200, slow)], ill, 700)
    assert still.finding is not None, "what is ill does not become what is usual"
    assert over_time([(14, LOADED)], still, 2000).finding is None
    one = replace(LOADED, running=1, tok_s=120.0)
    assert over_time([(40, one)], well, 600).finding is None, "fewer requests are another load"


def test_acceptance_against_its_own_history() -> None:
    well = over_time([(60, LOADED)])
    ill = over_time([(14, replace(LOADED, accept_len=1.02))], well, 300)
    assert ill.finding is not None
    assert ill.finding.slug == "acceptance-collapsed"
    assert over_time([(14, replace(LOADED, accept_len=2.2))], well, 300).finding is None
    dummy = replace(LOADED, accept_len=1.0)
    assert over_time([(200, dummy)]).finding is None, "a draft that never helped has nothing to lose"


def test_another_release_has_another_history() -> None:
    well = over_time([(120, LOADED)])
    state = well
    for n in range(20):
        other = look(replace(LOADED, tok_s=100.0), now=700.0 + 5 * n, release=ReleaseState(committed="r2"))
        state = fold(state, other)
    assert state.finding is None
    assert len(state.samples) < 36


def test_the_warning_of_an_accepted_start_is_a_badge_and_does_not_degrade() -> None:
    warned = Verdict(True, finding={"slug": "benign-warning", "summary": "capped to 4 requests", "rule": "capped"})
    tx = TxView("t", outcome="committed", attempts=(Attempt("r2", verdict=warned, invocation="i1"),))
    finding = found(look(tx=tx))
    assert finding is not None
    assert finding.summary == "capped to 4 requests"
    state = service_state(HostSnapshot("h1", link="up", at=0.0), service(finding=finding), 1.0)
    assert state.word == "ready"
    assert found(look(tx=tx, unit=replace(UNIT, invocation="i2"))) is None


ODD = st.none() | st.integers(-3, 1 << 40) | st.text(max_size=4) | st.lists(st.text(max_size=3), max_size=3)


@given(st.dictionaries(st.sampled_from(["alive", "dead", "frozen", "x"]), ODD, max_size=4),
       st.lists(st.dictionaries(st.sampled_from(["code", "wall", "pid", "pci", "text"]), ODD), max_size=3))  # fmt: skip
def test_nothing_that_a_host_sends_raises(ranks: dict[str, Any], xids: list[dict[str, Any]]) -> None:
    fold(Ailments(), look(ranks=ranks, xids=xids, gpus=[Gpu(0)]))
