"""The ladder as a pure state machine, with recorded logs and a clock of its own."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ddtree_console.demo
from ddtree_console.domain.engines import registry
from ddtree_console.domain.snapshot import Listener, UnitState
from ddtree_console.hostside.ladder import Expect, Ladder

RECORDINGS = Path(ddtree_console.demo.__file__).parent / "recordings"
PORT = 30000


def log_of(name: str) -> Iterator[tuple[float, str]]:
    """(seconds, line) of a recording, as journald would deliver it."""
    text = lzma.decompress((RECORDINGS / f"{name}.log.xz").read_bytes()).decode("utf-8", "replace")
    for line in text.split("\n"):
        when, _, said = line.lstrip(" ").partition(" ")
        try:
            yield float(when), said
        except ValueError:
            continue


def unit(**changes: Any) -> UnitState:
    """A running unit of the new invocation."""
    base: dict[str, Any] = {
        "load": "loaded",
        "active": "active",
        "sub": "running",
        "invocation": "new",
        "main_pid": 7,
        "control_group": "/x",
    }
    return UnitState("q.service", **{**base, **changes})


def ladder(**changes: Any) -> Ladder:
    """A ladder that begins at second 0."""
    return Ladder(0.0, Expect(**{"port": PORT, "old_invocation": "old", **changes}), registry.get("sglang").reader())


def served(made: Ladder, now: float = 10.0) -> Ladder:
    """The same ladder with everything but the hold behind it."""
    made.on_unit(now, unit())
    made.on_unit(now, unit())
    made.on_unit(now + 1, unit())
    for _ in range(2):
        made.on_listener(now + 1, Listener("ours", "127.0.0.1", 7))
    made.on_info(now + 1, {"model_path": "m"}, "m")
    made.on_token(now + 1, "a token")
    return made


def rungs(made: Ladder) -> list[str]:
    """Rungs passed."""
    return [data["rung"] for kind, data in made.drain() if kind == "rung" and data["state"] == "ok"]


def code(made: Ladder) -> str:
    """The verdict's code."""
    assert made.verdict is not None
    assert not made.verdict.ok
    return made.verdict.code


def test_ready_only_after_the_token_was_held() -> None:
    made = served(ladder(hold=20.0))
    assert rungs(made) == ["invocation", "process", "listener", "info", "token"]
    made.tick(30.9)
    assert made.verdict is None
    made.tick(31.0)
    assert made.verdict is not None
    assert made.verdict.ok
    assert rungs(made) == ["held"]


@pytest.mark.parametrize("upto", ["invocation", "process", "listener", "info"])
def test_no_rung_is_passed_before_the_one_below_it(upto: str) -> None:
    made = ladder()
    if upto != "invocation":
        made.on_unit(1, unit())
    if upto in ("listener", "info"):
        made.on_unit(1, unit())
        made.on_unit(2, unit())
    if upto == "info":
        made.on_listener(2, Listener("ours"))
        made.on_listener(2, Listener("ours"))
    made.on_token(3, "early")
    if upto != "info":
        made.on_info(3, {}, "early")
    assert made.rung == upto


def test_the_old_invocation_is_not_the_new_one() -> None:
    made = ladder()
    made.on_unit(1, unit(invocation="old"))
    assert made.rung == "invocation"
    made.on_unit(11, unit(invocation="old", active="failed", sub="failed", result="dependency"))
    assert code(made) == "start-refused"


def test_restart_exit_and_changed_process_each_end_it() -> None:
    made = ladder()
    made.on_unit(1, unit())
    made.on_unit(2, unit(main_pid=8))
    assert code(made) == "process-changed"
    for state, wanted in (
        (unit(active="failed", sub="failed", exit_code=1, exit_status=1), "unit-failed"),
        (unit(active="activating", sub="auto-restart", exit_code=1, exit_status=1), "restarted"),
        (unit(invocation="third", restarts=1), "restarted"),
        (unit(active="failed", sub="failed", exit_code=1, exit_status=2), "exit-arguments"),
    ):
        made = ladder()
        made.on_unit(1, unit())
        made.on_unit(2, state)
        assert made.ended
        made.finish(2)
        assert code(made) == wanted


def test_an_exit_in_the_hold_is_a_lost_hold_and_so_is_a_lost_listener() -> None:
    made = served(ladder())
    made.on_unit(12, unit(active="failed", sub="failed", exit_code=2, exit_status=9, result="signal"))
    made.finish(12)
    assert code(made) == "hold-lost"
    assert made.verdict is not None
    assert made.verdict.exit == {"result": "signal", "code": 2, "status": 9, "restarts": 0}
    made = served(ladder())
    made.on_listener(12, Listener("nobody"))
    assert made.verdict is None
    made.on_listener(13.5, Listener("nobody"))
    assert code(made) == "hold-lost"


def test_a_port_that_is_only_tried_is_neither_ours_nor_foreign() -> None:
    made = ladder()
    for at in (1.0, 1.0, 2.0):
        made.on_unit(at, unit())
    made.on_listener(2.0, Listener("ours"))
    made.on_listener(2.2, Listener("nobody"))
    assert made.rung == "listener"
    made.on_listener(2.4, Listener("foreign", pid=9, command="nc"))
    made.on_listener(2.6, Listener("nobody"))
    made.on_listener(2.8, Listener("foreign", pid=9, command="nc"))
    assert made.verdict is None
    made.on_listener(3.2, Listener("foreign", pid=9, command="nc"))
    assert code(made) == "foreign-listener"


def test_silence_is_not_failure_while_something_moves_and_is_once_nothing_does() -> None:
    made = ladder(deadline=10_000.0)
    made.on_unit(1, unit())
    for second in range(1, 2000):
        made.on_sample(second, cpu_usec=second * 500_000)
    assert made.verdict is None
    for second in range(2000, 2400):
        made.on_sample(second, cpu_usec=2000 * 500_000)
    assert code(made) == "stalled"


def test_the_total_deadline_can_be_extended_and_does_not_run_in_the_hold() -> None:
    made = ladder(deadline=50.0)
    made.progress.extend(25.0)
    made.on_sample(60, cpu_usec=1)
    assert made.verdict is None
    made.on_sample(75, cpu_usec=2)
    assert code(made) == "deadline"
    made = served(ladder(deadline=12.0, hold=60.0))
    made.on_sample(100, cpu_usec=1)
    assert made.verdict is None


@pytest.mark.parametrize(
    ("name", "wanted", "said"),
    [
        ("memory-pool-too-small", "fatal-log", "Not enough memory"),
        ("triton-crash-decode-capture", "fatal-log", ""),
        ("triton-crash-piecewise", "fatal-log", ""),
        ("graph-capture-crash", "fatal-log", ""),
        ("port-in-use-never-exits", "cannot-bind", "address already in use"),
    ],
)
def test_a_recorded_failure_ends_within_a_second_of_its_fatal_line(name: str, wanted: str, said: str) -> None:
    made, now = ladder(), 0.0
    made.on_unit(0, unit())
    for when, line in log_of(name):
        while now < when and made.verdict is None:
            now += 0.1
            made.tick(now)
        if made.verdict is not None:
            break
        made.on_line(now, line)
    while made.verdict is None and now < 1000:
        now += 0.1
        made.tick(now)
    assert made.log.fatal is not None
    assert now - made.log.fatal[0] < 0.5
    assert code(made) == wanted
    assert made.verdict is not None
    assert said in made.verdict.cause
    assert made.verdict.evidence


@pytest.mark.parametrize("name", ["dflash-healthy", "dflash-healthy-bars", "dflash-disable-cuda-graph-only"])
def test_a_healthy_recording_has_no_verdict_before_its_token(name: str) -> None:
    made = ladder(deadline=1000.0, set_flags={"disable-cuda-graph": True})
    made.on_unit(0, unit())
    for when, line in log_of(name):
        if "Draining" in line or "SIGTERM" in line:
            break
        made.on_line(when, line)
        made.tick(when)
    assert made.verdict is None
    assert made.log.ready
    phases = [data["phase"] for kind, data in made.drain() if kind == "phase" and data["state"] == "ok"]
    assert {"weights", "kv cache", "piecewise graphs", "draft weights"} <= set(phases)
    made.on_effective(200, {"disable-cuda-graph": True})
    drifts = [data for kind, data in made.drain() if kind == "drift"]
    assert len(drifts) == 1
    assert "piecewise graphs" in drifts[0]["effective"]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("line"), st.text()),
            st.tuples(st.just("unit"), st.sampled_from(["active", "activating", "failed", "inactive", ""])),
            st.tuples(st.just("listener"), st.sampled_from(["ours", "foreign", "nobody", "unknown"])),
            st.tuples(st.just("sample"), st.integers(0, 1 << 40)),
            st.tuples(st.just("info"), st.just("")),
            st.tuples(st.just("token"), st.just("")),
        ),
        max_size=30,
    )
)
def test_any_evidence_in_any_order_gives_one_verdict_and_no_token_means_not_ready(
    evidence: list[tuple[str, Any]],
) -> None:
    made, token = ladder(hold=3.0), False
    for now, (kind, value) in enumerate(evidence):
        if kind == "line":
            made.on_line(now, value)
        elif kind == "unit":
            made.on_unit(now, unit(active=value))
        elif kind == "listener":
            made.on_listener(now, Listener(value))
        elif kind == "sample":
            made.on_sample(now, cpu_usec=value, read_bytes=value, gpu_memory=value)
        elif kind == "info":
            made.on_info(now, {}, "m")
        else:
            token = token or made.rung == "token"
            made.on_token(now, "")
        made.tick(now)
        if made.ended:
            made.finish(now)
    first = made.verdict
    assert first is None or not first.ok or token
    made.tick(1000)
    made.give_up(1000, "other", "late")
    assert first is None or made.verdict is first
