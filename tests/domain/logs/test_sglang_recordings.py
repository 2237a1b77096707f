"""Every recording, read line by line: its phases, its figures, its cause, and nothing fatal in a healthy one."""

from __future__ import annotations

import time
from functools import cache

import pytest

from ddtree_console.demo import recordings
from ddtree_console.domain.engines.base import Figures, LogFact
from ddtree_console.domain.engines.sglang_log import SglangReader

HEALTHY = ("dflash-healthy", "dflash-healthy-bars", "dflash-disable-cuda-graph-only", "dflash-eager-then-frozen")
START = ["imports", "arguments", "imports", "distributed", "weights", "kv cache"]
DRAFT = ["distributed", "draft weights", "draft kv cache"]


@cache
def read(name: str) -> tuple[SglangReader, list[tuple[int, LogFact]], list[str]]:
    reader, lines = SglangReader(), recordings.load(name).text()
    return reader, [(i, fact) for i, line in enumerate(lines) for fact in reader.feed(line)], lines


def of(name: str, kind: str) -> list[LogFact]:
    return [fact for _, fact in read(name)[1] if fact.kind == kind]


def phases(name: str, state: str) -> list[str]:
    return [fact.name for fact in of(name, "phase") if fact.state == state]


@pytest.mark.parametrize(
    ("name", "graphs", "draft_graphs"),
    [
        ("dflash-healthy", ["graphs", "piecewise graphs"], ["draft graphs"]),
        ("dflash-healthy-bars", ["graphs", "piecewise graphs"], ["draft graphs"]),
        ("dflash-disable-cuda-graph-only", ["piecewise graphs"], []),
        ("dflash-eager-then-frozen", [], []),
    ],
)
def test_phases_of_a_good_start(name: str, graphs: list[str], draft_graphs: list[str]) -> None:
    wanted = [*START, *graphs, *DRAFT, *draft_graphs, "warm-up"]
    assert phases(name, "run") == wanted
    assert phases(name, "ok") == wanted
    order = [fact.kind for _, fact in read(name)[1] if fact.kind == "ready" or fact.name == "warm-up"]
    assert order == ["phase", "phase", "ready"]


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_fatal_in_a_server_that_served(name: str) -> None:
    reader = read(name)[0]
    assert of(name, "fatal") == []
    assert reader.cause() == ("", "", ())
    # the ASGI traceback of one request is no failure of the server, nor are the SIGQUIT lines of its stop
    assert {fact.name for fact in of(name, "exception")} == {"asgi"}
    assert len(of(name, "wrapper")) == 2


@pytest.mark.parametrize(
    ("name", "code", "line", "how", "at", "phase"),
    [
        (
            "memory-pool-too-small",
            "fatal-log",
            "RuntimeError: Not enough memory. Please",
            "exception",
            52,
            "kv cache",
        ),
        (
            "graph-capture-crash",
            "fatal-log",
            "TypeError: 'shape' object is not subscriptable",
            "exception",
            84,
            "graphs",
        ),
        (
            "triton-crash-decode-capture",
            "fatal-log",
            "triton.runtime.errors.PTXASError",
            "exception",
            3859,
            "graphs",
        ),
        (
            "triton-crash-piecewise",
            "fatal-log",
            "triton.runtime.errors.PTXASError",
            "exception",
            2810,
            "piecewise graphs",
        ),
        (
            "unknown-flag",
            "exit-arguments",
            "sglang serve: error: unrecognized arguments",
            "arguments",
            344,
            "arguments",
        ),
        (
            "invalid-choice",
            "exit-arguments",
            "sglang serve: error: argument --attention",
            "arguments",
            344,
            "arguments",
        ),
        (
            "model-path-missing",
            "fatal-log",
            "huggingface_hub.errors.HFValidationError: Repo",
            "exception",
            64,
            "arguments",
        ),
        ("port-in-use-never-exits", "cannot-bind", "[2026-11-29 14:29:18] ERROR:    [Errno 98]", "bind", 63, ""),
    ],
)
def test_the_decisive_line_is_found_as_it_comes(name: str, code: str, line: str, how: str, at: int, phase: str) -> None:
    reader, facts, lines = read(name)
    fatal = [(i, fact) for i, fact in facts if fact.kind == "fatal"]
    assert [(i, fact.name) for i, fact in fatal] == [(at, code)]
    found, cause, evidence = reader.cause()
    assert found == how
    assert cause.startswith(line)
    assert fatal[0][1].text == cause
    assert evidence[0] == cause[:500] and len(evidence) <= 12
    # evidence is what the host wrote, never a sentence of ours
    assert all(any(piece in whole for whole in lines) for piece in evidence)
    began = [fact.name for _, fact in facts if fact.kind == "phase" and fact.state == "run"]
    ended = [fact.name for _, fact in facts if fact.kind == "phase" and fact.state == "ok"]
    assert (began[-1] if len(began) > len(ended) else "") == phase


@pytest.mark.parametrize("name", ["triton-crash-decode-capture", "triton-crash-piecewise"])
def test_three_thousand_lines_of_ptx_hide_nothing(name: str) -> None:
    evidence = read(name)[0].cause()[2]
    assert evidence[1] == "ptxas fatal   : Value 'sm_86' is not defined for option 'gpu-name'"
    assert any("graph begin" in line for line in evidence)
    assert "Received sigquit" in evidence[-1]
    assert not any("%rd" in line or "ld.param" in line for line in evidence)


def test_bars_are_the_place_in_the_printed_list() -> None:
    bars = [fact for fact in of("dflash-healthy-bars", "bar") if fact.name == "graphs"]
    at = {fact.text: fact.done for fact in bars}
    assert {fact.total for fact in bars} == {23}
    # tqdm itself still says 1/23 and 12/23 there
    assert (at["capturing bs 32"], at["capturing bs 18"], at["capturing bs 8"], at["capturing bs 2"]) == (3, 10, 15, 21)
    done = [fact.done or 0 for fact in bars]
    assert done == sorted(done)
    assert done[0] == 0 and done[-1] == 23
    piecewise = [fact for fact in of("dflash-healthy-bars", "bar") if fact.name == "piecewise graphs"]
    for verb in ("compiling", "capturing"):
        part = [fact.done or 0 for fact in piecewise if fact.text.startswith(verb)]
        assert part == sorted(part) and part[-1] == 58 and {0, 29, 57} <= set(part)


def test_a_whole_bar_in_one_entry_is_one_fact() -> None:
    bars = [fact for fact in of("dflash-healthy", "bar") if fact.name == "graphs"]
    assert [(fact.done, fact.total) for fact in bars] == [(0, 23), (0, 23), (23, 23)]


def test_figures_of_the_log() -> None:
    values = {fact.name: fact.value for fact in of("dflash-healthy", "value")}
    assert values["weights GB"] == 1.18
    assert (values["kv cache tokens"], values["kv cache GB"]) == (321771, 34.36)
    assert (values["draft weights GB"], values["draft kv cache GB"]) == (0.15, 6.14)
    assert (values["max_total_num_tokens"], values["max_running_requests"], values["context_len"]) == (321771, 48, 8192)
    decode = [fact.value for fact in of("dflash-healthy", "decode")]
    assert decode[1] == Figures(running=1, waiting=0, tok_s=171.13, accept_len=1.0)
    assert [fact.name for fact in of("dflash-eager-then-frozen", "warning")] == ["capped", "hang", "hang"]


def test_our_probes_are_told_from_other_requests() -> None:
    access = of("dflash-healthy", "access")
    assert {(fact.name, fact.value) for fact in access} >= {
        ("/health", 503),
        ("/health", 200),
        ("/model_info", 200),
        ("/v1/loads", 500),
    }
    assert not any("generate HTTP" in fact.text and "health" not in fact.text for fact in access)


def test_ten_thousand_lines_take_less_than_half_a_second() -> None:
    lines = [line for line in recordings.load("dflash-healthy-bars").text() if len(line) < 1000]
    lines += recordings.load("triton-crash-decode-capture").text()
    lines = (lines * (10_000 // len(lines) + 1))[:10_000]
    reader = SglangReader()
    began = time.process_time()
    for line in lines:
        reader.feed(line)
    assert time.process_time() - began < 0.5
