"""The ladder with the engine of findings: recorded logs, a clock of its own, and what ends a wait in fact."""

from __future__ import annotations

from typing import Any

import pytest

from ddtree_console.config.rules import load_rules
from ddtree_console.domain.engines import registry
from ddtree_console.domain.findings.attempts import Attempted
from ddtree_console.domain.findings.engine import Findings
from ddtree_console.domain.findings.rules import Rules, rules_from_json
from ddtree_console.domain.snapshot import Listener
from ddtree_console.domain.stalls import Facts, Lock, Proc
from ddtree_console.hostside.ladder import Expect, Ladder
from tests.hostside.tx.test_ladder import PORT, code, log_of, served, unit


@pytest.fixture(scope="module")
def rules() -> Rules:
    return rules_from_json(load_rules())


def ladder(rules: Rules, reader: Any = None, **more: Any) -> Ladder:
    """A ladder that begins at second 0; flags, edited and attempts go to the engine."""
    engine = Findings(rules, **{key: more.pop(key) for key in ("flags", "edited", "attempts") if key in more})
    expect = Expect(**{"port": PORT, "old_invocation": "old", "deadline": 10_000.0, **more})
    return Ladder(0.0, expect, registry.get("sglang").reader(), engine)


def play(made: Ladder, name: str, without: str = "") -> float:
    """A recording to its verdict, or until it is asked to stop; the second of its end. without: lines left out."""
    made.on_unit(0, unit())
    now = 0.0
    for when, line in log_of(name):
        if without and without in line:
            continue
        while now < when and made.verdict is None:
            now += 0.1
            made.tick(now)
        if made.verdict is not None or "SIGTERM received" in line:
            return now
        made.on_line(now, line)
    end = now + 5
    while made.verdict is None and now < end:
        now += 0.1
        made.tick(now)
    return now


@pytest.mark.parametrize(
    ("name", "slug", "wanted"),
    [
        ("memory-pool-too-small", "kv-budget-too-small", "fatal-log"),
        ("graph-capture-crash", "cuda-graph-capture-crash", "fatal-log"),
        ("triton-crash-decode-capture", "kernel-arch-missing", "fatal-log"),
        ("triton-crash-piecewise", "kernel-arch-missing", "fatal-log"),
        ("port-in-use-never-exits", "port-in-use", "cannot-bind"),
        ("unknown-flag", "unknown-argument", "exit-arguments"),
        ("invalid-choice", "unknown-argument", "exit-arguments"),
    ],
)
def test_a_recorded_failure_ends_with_its_finding(rules: Rules, name: str, slug: str, wanted: str) -> None:
    made = ladder(rules)
    play(made, name)
    assert code(made) == wanted
    assert made.verdict is not None
    finding = made.verdict.finding
    assert (finding["slug"], finding["fatal"]) == (slug, True)
    decisive = finding["evidence"][0]["text"]
    assert decisive in made.verdict.cause, "a prefix may stand before it"
    assert made.verdict.evidence
    assert len(str(finding)) < 20_000


@pytest.mark.parametrize("name", ["dflash-healthy", "dflash-healthy-bars", "dflash-disable-cuda-graph-only"])
def test_a_healthy_start_has_no_finding(rules: Rules, name: str) -> None:
    made = ladder(rules)
    play(made, name)
    assert made.verdict is None
    found = made.diagnosis.verdict()
    assert found is None or not found.fatal


def test_the_exit_of_a_unit_is_the_end_of_what_only_warned(rules: Rules) -> None:
    made = ladder(rules)
    made.on_unit(0, unit())
    made.on_line(1, "ModuleNotFoundError: No module named 'outlines'")
    for second in range(2, 30):
        made.tick(second)
    assert made.verdict is None, "a line alone is no end"
    made.on_unit(30, unit(active="failed", sub="failed", exit_code=1, exit_status=1, result="exit-code"))
    made.finish(30)
    assert made.verdict is not None
    assert made.verdict.finding["slug"] == "python-module-missing"
    assert made.verdict.finding["fatal"]


def test_what_systemd_says_is_evidence_and_no_line_of_the_service(rules: Rules) -> None:
    made = ladder(rules)
    made.on_unit(0, unit())
    said = "q.service: Failed at step EXEC spawning /opt/venv/bin/python3: No such file or directory"
    made.on_line(1, said, 7, "systemd")
    assert made.log.lines == 0
    made.on_unit(2, unit(active="failed", sub="failed", exit_code=1, exit_status=203, result="exit-code"))
    made.finish(2)
    assert made.verdict is not None
    assert made.verdict.finding["slug"] == "unit-exec-failed"
    assert made.verdict.cause == said


def test_both_directions_tried_is_known_across_transactions(rules: Rules) -> None:
    tried = [
        Attempted({"mem-fraction-static": 0.88}, "kv-budget-too-small"),
        Attempted({"mem-fraction-static": 0.9}, "gpu-oom-graph-capture"),
    ]
    made = ladder(rules, flags={"mem-fraction-static": 0.89}, edited=("mem-fraction-static",), attempts=tried)
    play(made, "memory-pool-too-small", without="server_args=")
    assert made.verdict is not None
    assert "neither value fits" in made.verdict.finding["summary"]
    assert made.verdict.finding["blames"] == "mem-fraction-static"


def test_secrets_are_masked_in_a_finding(rules: Rules) -> None:
    made = ladder(rules)
    made.on_unit(0, unit())
    made.on_line(1, "sglang serve: error: unrecognized arguments: --api-keyy x --api-key sk-0123456789abcdef0123")
    for n in range(20):
        made.tick(1 + n / 10)
    assert made.verdict is not None
    assert "sk-0123456789abcdef0123" not in str(made.verdict.finding)


RANKS = (Proc(1, "python3"), Proc(2, "sglang::scheduler_TP0", "S", "0"), Proc(3, "sglang::scheduler_TP1", "S", "1"))


def test_a_dead_rank_is_told_in_progress_and_ends_the_wait(rules: Rules) -> None:
    made = ladder(rules, ranks=2)
    made.on_unit(0, unit())
    made.on_facts(1, Facts(1, RANKS))
    made.drain()
    for second in range(2, 60):
        made.on_facts(second, Facts(second, RANKS[:2]))
        made.on_sample(second, cpu_usec=second * 1_000_000, gpu_memory=5 << 30)
    told = [data for kind, data in made.drain() if kind == "progress"]
    assert {"stuck: rank 1 died, rank 0 waits"} == {data["words"] for data in told[3:]}
    assert told[5]["stall"] == "stalled-dead-child"
    assert told[5]["gpu"] == 5 << 30
    assert code(made) == "stalled"
    assert made.verdict is not None
    assert made.verdict.cause == "stuck: rank 1 died, rank 0 waits"
    assert made.verdict.finding["slug"] == "stalled-dead-child"


def test_why_a_rank_died_comes_before_that_it_did(rules: Rules) -> None:
    made = ladder(rules, ranks=2)
    made.on_unit(0, unit())
    made.on_facts(1, Facts(1, RANKS))
    made.on_line(2, "[2026-11-29 14:17:25 TP1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    for second in range(3, 60):
        made.on_facts(second, Facts(second, RANKS[:2]))
        made.on_sample(second, cpu_usec=second * 1_000_000)
    assert code(made) == "stalled"
    assert made.verdict is not None
    assert made.verdict.finding["slug"] == "gpu-oom-load"
    assert "out of memory" in made.verdict.evidence[0]


def test_a_port_of_somebody_else_is_a_finding_without_a_log(rules: Rules) -> None:
    made = ladder(rules)
    made.on_unit(0, unit())
    for second in (1.0, 2.0):
        made.on_listener(second, Listener("foreign", pid=9, command="nc"))
    assert code(made) == "foreign-listener"
    assert made.verdict is not None
    finding = made.verdict.finding
    assert (finding["slug"], finding["fatal"]) == ("port-in-use", True)
    assert "pid 9 (nc)" in finding["summary"]
    assert finding["remedies"][0]["text"] == "Stop that process."


def test_a_lock_that_nobody_holds_ends_a_quiet_start_within_its_limit(rules: Rules) -> None:
    made = ladder(rules)
    made.on_unit(0, unit())
    made.on_line(1, "x")
    second = 1
    while made.verdict is None and second < 120:
        second += 1
        made.on_facts(second, Facts(second, RANKS, 0, (Lock("/c/ops/lock", 4127),)))
        made.on_sample(second, cpu_usec=0)
    assert 60 <= second <= 63
    assert made.verdict is not None
    assert made.verdict.cause == "stuck: waits for a lock left by pid 4127"
    assert made.verdict.finding["remedies"][0]["command"] == "rm -f /c/ops/lock"


def test_an_error_and_then_a_minute_of_nothing_is_the_end_and_movement_is_not(rules: Rules) -> None:
    for moves in (True, False):
        made = ladder(rules)
        made.on_unit(0, unit())
        made.on_line(1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
        for second in range(2, 80):
            made.on_sample(second, cpu_usec=second * 900_000 if moves else 0)
            made.tick(second)
        assert (made.verdict is None) is moves
        if made.verdict is not None:
            assert made.verdict.finding["slug"] == "gpu-oom-load"


def test_a_start_that_held_takes_its_warning_along() -> None:
    row = {
        "id": "w",
        "slug": "gpu-occupied",
        "role": "badge",
        "any": ["somebody else is on the GPU"],
        "summary": "Two!",
    }
    made = ladder(rules_from_json([row]), hold=1.0)
    made.on_line(1, "[2026-11-29 14:17:25] somebody else is on the GPU")
    served(made, 2.0)
    made.tick(10.0)
    assert made.verdict is not None
    assert made.verdict.ok
    assert (made.verdict.finding["summary"], made.verdict.finding["fatal"]) == ("Two!", False)


def test_a_broken_engine_never_ends_a_wait(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ladder(rules)
    made.on_unit(0, unit())

    def broken(*_: object, **__: object) -> None:
        raise RecursionError("a rule of the operator's")

    monkeypatch.setattr(Findings, "feed", broken)
    for second in range(1, 10):
        made.on_line(second, "x")
        made.tick(second)
    assert made.verdict is None
    notes = [data["text"] for kind, data in made.drain() if kind == "note"]
    assert len(notes) == 1
    assert "a rule of the operator's" in notes[0]
    made.on_line(10, "sglang serve: error: unrecognized arguments: --x")
    made.tick(11)
    assert code(made) == "exit-arguments", "the reader still knows"
