"""What ends a start in fact, what only looks like it, and what the log's own figures say."""

from __future__ import annotations

import pytest

from ddtree_console.domain.findings.attempts import Attempted
from ddtree_console.domain.findings.engine import Findings
from ddtree_console.domain.findings.rules import Rules
from tests.domain.findings.test_engine import (
    FRAME,
    POOL,
    SCHEDULER,
    SIGQUIT,
    STAMP,
    arguments,
    fed,
    scheduler,
    verdict,
)  # fmt: skip

DRAFT = '  File "/opt/llm/sglang/srt/speculative/eagle_worker.py", line 7, in __init__'
READY = STAMP.format("") + "The server is fired up and ready to roll!"


def test_a_symptom_ends_a_log_where_the_engine_says_that_it_ended_it(rules: Rules) -> None:
    lines = [arguments(), STAMP.format(" TP0") + SCHEDULER, DRAFT, "AssertionError"]
    engine = fed(rules, *lines)
    assert not [f for f in engine.findings() if f.fatal]  # while it is watched, the process may still say more
    engine.close()
    assert (verdict(engine).slug, verdict(engine).fatal) == ("draft-model-mismatch", True)
    engine = fed(rules, arguments(), "Traceback (most recent call last):", DRAFT, "AssertionError")
    engine.close()
    assert not [f for f in engine.findings() if f.fatal]


def test_what_a_rank_prints_because_of_another_is_no_end(rules: Rules) -> None:
    engine = fed(rules, arguments(tp_size=2), *scheduler("RuntimeError: NCCL error: unhandled system error"))
    engine.close()
    assert not [f for f in engine.findings() if f.fatal]


def test_vllms_own_words_for_a_process_that_ended(rules: Rules) -> None:
    head = "(Worker_TP1 pid=9) ERROR 04-06 14:51:04 [multiproc_executor.py:7] "
    lines = ["WorkerProc failed to start.", "Traceback (most recent call last):", DRAFT, "AssertionError"]
    engine = fed(rules, *(head + line for line in lines))
    engine.close()
    assert (verdict(engine).slug, verdict(engine).fatal) == ("draft-model-mismatch", True)


def test_a_message_with_a_stamp_on_every_line_is_one(rules: Rules) -> None:
    stamp = "2026-03-28T01:20:32.907Z "
    chain = [
        "Traceback (most recent call last):", FRAME, "ValueError: something new", "over two lines",
        "During handling of the above exception, another exception occurred:",
        "Traceback (most recent call last):", FRAME, "RuntimeError: wrapped",
    ]  # fmt: skip
    engine = fed(rules, arguments(), *(stamp + line for line in chain))
    engine.end()
    found = verdict(engine)
    assert [e.text for e in found.evidence] == ["ValueError: something new", "RuntimeError: wrapped"]


def test_answers_after_the_schedulers_end_are_a_zombie(rules: Rules) -> None:
    engine = Findings(rules)
    for t, line in enumerate([arguments(), READY, *scheduler("ValueError: something new")]):
        engine.feed(line, t=float(t))
    health = STAMP.format("") + 'INFO:     10.0.0.1:1 - "GET /health HTTP/1.1" 200 OK'
    engine.feed(health, t=7.0)  # a last answer while it goes down
    before = engine.verdict()
    assert before is None or before.slug != "zombie-service"
    engine.feed(health, t=17.0)
    found = verdict(engine)
    assert (found.slug, found.fatal) == ("zombie-service", True)
    assert found.evidence[0].text == "ValueError: something new"
    engine.feed(SIGQUIT, t=18.0)
    assert verdict(engine).slug == "unknown"  # it ends after all: what it died of is what counts
    engine = Findings(rules)
    for t, line in enumerate([arguments(), READY, *scheduler("ValueError: of one of two")]):
        engine.feed(line, t=float(t))
    engine.feed(STAMP.format("") + "Decode batch, #running-req: 1", t=20.0)
    engine.feed(health, t=30.0)  # another scheduler works on
    assert [(f.slug, f.fatal) for f in engine.findings()] == [("unknown", False)]


@pytest.mark.parametrize("line", ["vLLM is using nccl==2.27.3", "sglang is using nccl==2.27.3"])
def test_silence_after_nccl_began_is_a_rendezvous(rules: Rules, line: str) -> None:
    engine = Findings(rules)
    engine.feed(f"(Worker_TP0 pid=9) INFO 11-11 12:20:30 [pynccl.py:103] {line}", t=0.0)
    assert engine.phase == "distributed"
    engine.silence(400.0)
    assert verdict(engine).slug == "stalled-rendezvous"


def test_vllms_words_move_the_phase(rules: Rules) -> None:
    engine = fed(rules, "INFO 11-11 12:20:31 [x.py:1] Starting to load model /m...")
    assert engine._start.phases.now == "weights"
    engine.feed("INFO 11-11 12:20:40 [x.py:1] Model loading took 15.2 GiB and 9 seconds")
    assert engine._start.phases.now == ""
    engine.feed("INFO 11-11 12:20:41 [x.py:1] Capturing CUDA graphs (decode, FULL)")
    assert engine._start.phases.now == "graphs"
    engine.feed("INFO 11-11 12:20:50 [x.py:1] Graph capturing finished in 9 secs, took 0.5 GiB")
    assert engine._start.phases.now == ""


def test_the_fraction_is_computed_from_what_the_weights_left(rules: Rules) -> None:
    loads = [
        STAMP.format(" TP0") + "Load weight begin. avail mem=100.00 GB",
        STAMP.format(" TP0") + "Load weight end. type=Qwen3ForCausalLM, avail mem=72.40 GB, mem usage=27.60 GB.",
        STAMP.format(" TP0") + "Load weight begin. avail mem=72.40 GB",
        STAMP.format(" TP0") + "Load weight end. type=DFlash, avail mem=69.55 GB, mem usage=2.85 GB.",
    ]
    found = verdict(fed(rules, arguments(mem_fraction_static=0.2), *loads, *scheduler(POOL)))
    edit = found.remedies[0].edits[0]
    assert (edit.name, edit.op, edit.value) == ("mem-fraction-static", "raise", 0.31)
    assert found.remedies[0].text == "Raise --mem-fraction-static from 0.2 to at least 0.31."
    found = verdict(fed(rules, arguments(mem_fraction_static=0.2), loads[1], *scheduler(POOL)))
    assert found.remedies[0].edits[0].value == 0.28  # a log that begins later: what is free and what the weights took
    # weights that fit are not the reason: the figure says nothing then
    found = verdict(fed(rules, arguments(mem_fraction_static=0.6), *loads, *scheduler(POOL)))
    assert found.remedies[0].edits[0].value is None


def test_both_directions_are_not_tried_again_where_this_fraction_is_unknown(rules: Rules) -> None:
    tried = [
        Attempted({"mem-fraction-static": 0.84}, "kv-budget-too-small"),
        Attempted({"mem-fraction-static": 0.85}, "gpu-oom-graph-capture"),
    ]
    for flags in ({}, {"mem-fraction-static": 0.84}):
        engine = fed(rules, *scheduler(POOL), attempts=tried, flags=flags, build_flags=frozenset(["tp-size"]))
        assert not [e for r in verdict(engine).remedies[:1] for e in r.edits if e.name == "mem-fraction-static"]
    apart = [tried[0], Attempted({"mem-fraction-static": 0.94}, "gpu-oom-graph-capture")]
    assert verdict(fed(rules, *scheduler(POOL), attempts=apart)).remedies[0].edits[0].value == 0.89


def test_fewer_requests_than_asked_are_a_badge(rules: Rules) -> None:
    line = STAMP.format("") + "max_running_requests is capped to 4 by the mamba state cache"
    engine = fed(rules, arguments(), line, READY)
    assert [(f.slug, f.rule, f.fatal) for f in engine.findings()] == [("benign-warning", "capped", False)]
    assert "capped to 4" in engine.findings()[0].summary


def test_sigquit_stands_in_no_evidence(rules: Rules) -> None:
    engine = fed(rules, arguments(mem_fraction_static=0.2), *scheduler(POOL), SIGQUIT)
    assert not [e for e in verdict(engine).evidence if "sigquit" in e.text]
    engine = fed(rules, arguments(), "something failed strangely", SIGQUIT)
    engine.end()
    assert [e.text for e in verdict(engine).evidence] == ["something failed strangely"]
