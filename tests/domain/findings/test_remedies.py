"""Remedies are edits that this build has, with computed values, and never in a circle."""

from __future__ import annotations

import pytest

from ddtree_console.domain.findings.attempts import Attempted, between
from ddtree_console.domain.findings.engine import Findings
from ddtree_console.domain.findings.rules import Rules
from ddtree_console.domain.findings.types import Edit, Finding
from ddtree_console.domain.findings.wording import fill

PIECEWISE = "Piecewise CUDA Graph failed with error: 'x' object has no attribute 'y'"
NAMED = (
    "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.2. "
    "Raise --mem-fraction-static above 0.301 (minimum viable 0.301)"
)
OOM = "Exception: Capture cuda graph failed: CUDA out of memory."


def found(rules: Rules, line: str, **options: object) -> Finding:
    engine = Findings(rules, **options)  # type: ignore[arg-type]
    engine.feed(line)
    engine.end()
    verdict = engine.verdict()
    assert verdict is not None
    return verdict


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (None, [("disable-piecewise-cuda-graph", "set", True)]),
        ({"disable-piecewise-cuda-graph", "disable-cuda-graph"}, [("disable-piecewise-cuda-graph", "set", True)]),
        (
            {"disable-prefill-cuda-graph", "cuda-graph-backend-prefill", "disable-cuda-graph"},
            [("disable-prefill-cuda-graph", "set", True)],
        ),
        ({"cuda-graph-backend-prefill"}, [("cuda-graph-backend-prefill", "set", "disabled")]),
        ({"disable-cuda-graph"}, []),
    ],
)
def test_the_prefill_graph_is_stopped_as_this_release_spells_it(
    build: set[str] | None, wanted: list[tuple[str, str, object]], rules: Rules
) -> None:
    options = {} if build is None else {"build_flags": frozenset(build)}
    verdict = found(rules, PIECEWISE, **options)
    assert verdict.slug == "piecewise-graph-crash"
    assert [(e.name, e.op, e.value) for r in verdict.remedies for e in r.edits] == wanted


def test_a_release_is_told_by_its_own_line_of_arguments(rules: Rules) -> None:
    engine = Findings(rules)
    engine.feed("server_args=ServerArgs(model_path='/m', disable_prefill_cuda_graph=False)")
    engine.feed(PIECEWISE)
    engine.end()
    verdict = engine.verdict()
    assert verdict is not None
    assert verdict.remedies[0].edits[0].name == "disable-prefill-cuda-graph"


def test_an_opt_in_graph_is_left_away(rules: Rules) -> None:
    verdict = found(rules, PIECEWISE, flags={"enable-piecewise-cuda-graph": True})
    assert verdict.remedies[0].edits == (Edit("flag", "enable-piecewise-cuda-graph", "remove"),)


def test_the_least_fraction_that_the_program_names_is_used(rules: Rules) -> None:
    verdict = found(rules, NAMED, flags={"mem-fraction-static": 0.2})
    assert verdict.remedies[0].edits[0] == Edit("flag", "mem-fraction-static", "raise", 0.31)
    assert verdict.remedies[0].text == "Raise --mem-fraction-static from 0.2 to at least 0.31."


def test_a_fraction_at_the_top_is_not_raised(rules: Rules) -> None:
    verdict = found(
        rules,
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        flags={"mem-fraction-static": 0.95, "speculative-algorithm": "DFLASH", "max-running-requests": 8},
    )
    assert verdict.remedies[0].edits == (Edit("flag", "max-running-requests", "lower", 4),)
    assert not [e for r in verdict.remedies for e in r.edits if e.name in ("mem-fraction-static", "context-length")]


def test_the_largest_graph_is_halved_and_named_as_the_build_does(rules: Rules) -> None:
    build = frozenset(("mem-fraction-static", "cuda-graph-max-bs-decode", "disable-cuda-graph"))
    flags = {"mem-fraction-static": 0.9, "cuda-graph-max-bs-decode": 64}
    edits = [e for r in found(rules, OOM, build_flags=build, flags=flags).remedies for e in r.edits]
    assert edits == [
        Edit("flag", "mem-fraction-static", "lower", 0.87),
        Edit("flag", "cuda-graph-max-bs-decode", "lower", 32),
        Edit("flag", "disable-cuda-graph", "set", True),
    ]


def test_nothing_between_two_refused_fractions() -> None:
    low = [Attempted({"mem-fraction-static": "0.84"}, "kv-budget-too-small")]
    assert "neither value fits" in between("gpu-oom-load", 0.85, low)
    assert between("gpu-oom-load", 0.95, low) == ""
    assert between("gpu-oom-load", 0.5, low) == ""
    assert between("port-in-use", 0.85, low) == ""
    high = [Attempted({"mem-fraction-static": 0.85}, "gpu-oom-graph-capture")]
    assert "neither value fits" in between("kv-budget-too-small", 0.84, high)
    assert between("gpu-oom-load", None, low) == ""


@pytest.mark.parametrize(
    ("text", "values", "told"),
    [
        ("a {x} b", {"x": "1"}, "a 1 b"),
        ("a[ at {x}] b", {}, "a b"),
        ("a[ at {x}] b", {"x": "1"}, "a at 1 b"),
        ("a {x}", {}, "a ?"),
        ("{x}", {"x": "{y}", "y": "2"}, "{y}"),
    ],
)
def test_sentences_with_values(text: str, values: dict[str, str], told: str) -> None:
    assert fill(text, values) == told


def test_more_free_than_wanted_is_no_matter_of_flags(rules: Rules) -> None:
    line = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {} GiB. GPU 0 has a total capacity of 95.59 GiB"
    )
    odd = found(rules, line.format("18.56") + " of which 53.44 GiB is free.")
    assert odd.slug == "gpu-oom-load" and not [e for r in odd.remedies for e in r.edits]
    usual = found(rules, line.format("58.56") + " of which 53.44 GiB is free.")
    assert [e.name for r in usual.remedies for e in r.edits] == ["tp-size"]


def test_an_internal_port_is_not_the_http_port(rules: Rules) -> None:
    inner = found(rules, "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:30001')")
    assert [e.name for r in inner.remedies for e in r.edits] == ["nccl-port"]
    outer = found(
        rules, "[Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use"
    )
    assert outer.remedies[1].edits[0].name == "port"
