"""What was asked against what the server has: its answer, its log, captures, concurrency; and what was accepted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.demo import recordings
from ddtree_console.domain import drift
from ddtree_console.domain.engines import registry, sglang_arguments
from ddtree_console.domain.service_state import service_state
from ddtree_console.domain.snapshot import Drift, HostSnapshot, HttpState, ReleaseState, ServiceSnapshot, UnitState
from ddtree_console.hostside.ladder_log import LogSide


def recorded(name: str) -> tuple[dict[str, Any], LogSide]:
    """(effective flags of its /server_info, the log as the ladder reads it up to the ready line)."""
    run = recordings.load(name)
    info = (run.responses.get("/server_info") or run.responses["/get_server_info"])[1]
    side = LogSide(registry.get("sglang").reader(), {})
    for (when, _), text in zip(run.lines, run.text(), strict=True):
        side.feed(when, text)
        if side.ready:
            break
    return registry.get("sglang").effective(info), side


def compare(asked: dict[str, Any], effective: dict[str, Any], side: LogSide, **more: Any) -> list[Drift]:
    return drift.compare(asked, effective, side.seen, (), side.arguments, side.values, **more)


def test_a_recorded_start_whose_prefill_graph_was_captured_all_the_same() -> None:
    effective, side = recorded("dflash-disable-cuda-graph-only")
    asked = {
        "disable-cuda-graph": True,
        "mem-fraction-static": 0.3,
        "context-length": "8192",
        "attention-backend": "triton",
    }
    found = compare(asked, effective, side)
    assert [(d.flag, d.asked, d.effective) for d in found] == [
        ("disable-cuda-graph", "true", "piecewise graphs captured")
    ]
    assert found[0].why == (
        "captured: this release stops only the decode graph with it; --disable-piecewise-cuda-graph stops the other"
    )


def test_a_recorded_start_that_has_what_was_asked() -> None:
    effective, side = recorded("dflash-healthy")
    asked = {
        "mem-fraction-static": 0.3, "context-length": "8192", "speculative-algorithm": "dflash",
        "max-running-requests": 48,
        "speculative-draft-model": "/models/qwen3-dflash-draft/", "model": "/models/qwen3-target", "port": 1, "tp": 1,
        "chunked-prefill-size": 8192,
    }  # fmt: skip
    assert compare(asked, effective, side) == []


def test_the_log_stands_in_for_a_server_that_does_not_tell_its_arguments() -> None:
    effective, side = recorded("dflash-healthy")
    asked = {
        "context-length": 4096,
        "attention-backend": "fa3",
        "max-running-requests": 64,
        "max-total-tokens": 400_000,
    }
    for answer in ({}, effective):
        found = {d.flag: (d.effective, d.why) for d in compare(asked, answer, side)}
        assert found == {
            "context-length": ("8192", "overridden"),
            "attention-backend": ("triton", "overridden"),
            "max-running-requests": ("48", "capped"),
            "max-total-tokens": ("321771 tokens in the pool", "capped"),
        }


@pytest.mark.parametrize(
    ("asked", "effective", "totals", "wanted"),
    [
        # the argument lies; the scheduler admits less (a hybrid model's state cache)
        ({"max-running-requests": 48}, {"max-running-requests": 48}, {"max_running_requests": 3}, ("3", "capped")),
        ({"max-running-requests": 48}, {"max-running-requests": 48, "dp-size": 2}, {"max_running_requests": 24}, None),
        ({"enable-metrics": True}, {"enable-metrics": False}, {}, ("false", "ignored")),
        ({"mamba-ssm-dtype": "bfloat16"}, {"mamba-ssm-dtype": None}, {}, ("unset", "ignored")),
        ({"page-size": 1}, {"page-size": 64}, {}, ("64", "overridden")),
        ({"context-length": "32Ki"}, {"context-length": 32768}, {}, None),
        ({"context-length": "32k"}, {"context-length": 32000}, {}, None),
        ({"dtype": "bf16"}, {"dtype": "torch.bfloat16"}, {}, None),
        ({"speculative-algorithm": "NEXTN"}, {"speculative-algorithm": "EAGLE"}, {}, None),
        ({"disable-radix-cache": False}, {"disable-radix-cache": None}, {}, None),
        ({"tensor-parallel-size": 2}, {"tp-size": 1}, {}, ("1", "capped")),
        ({"no-such-flag": 1}, {}, {}, None),
        ({"api-key": "k"}, {"api-key": "***"}, {}, None),
        ({"max-total-tokens": 1000}, {"max-total-num-tokens": 998}, {}, None),
    ],
)
def test_single_flags(
    asked: dict[str, Any], effective: dict[str, Any], totals: dict[str, Any], wanted: tuple[str, str] | None
) -> None:
    found = drift.compare(asked, effective, (), (), {}, totals)
    assert [(d.effective, d.why) for d in found] == ([] if wanted is None else [wanted])


def test_the_log_says_why_fewer_requests_are_admitted() -> None:
    side = LogSide(registry.get("sglang").reader(), {})
    line = "max_running_requests is capped to 3 by the mamba state cache (max_mamba_cache_size=9)."
    side.feed(1.0, f"[2026-11-29 14:30:27] {line}")
    side.feed(2.0, "[2026-11-29 14:30:27] max_total_num_tokens=1000, max_running_requests=3, context_len=8192")
    asked = {"max-running-requests": 48}
    found = drift.compare(asked, asked, side.seen, (), side.arguments, side.values, side.capped)
    assert [(d.effective, d.why) for d in found] == [("3", f"capped: {line}")]


@pytest.mark.parametrize(
    ("flag", "value", "phases", "captured"),
    [
        ("disable-prefill-cuda-graph", True, ("graphs", "piecewise graphs"), "piecewise graphs"),
        ("disable-decode-cuda-graph", True, ("graphs", "draft graphs"), "graphs, draft graphs"),
        ("disable-piecewise-cuda-graph", True, ("graphs",), ""),
        ("cuda-graph-backend-prefill", "disabled", ("draft piecewise graphs",), "draft piecewise graphs"),
        ("cuda-graph-backend-prefill", "breakable", ("piecewise graphs",), ""),
        ("disable-cuda-graph", False, ("graphs",), ""),
    ],
)
def test_graphs_that_were_captured_although_disabled(
    flag: str, value: Any, phases: tuple[str, ...], captured: str
) -> None:
    found = drift.compare({flag: value}, {flag: value}, phases, (flag,))
    assert [(d.effective, d.must, d.why.partition(":")[0]) for d in found] == (
        [(f"{captured} captured", True, "captured")] if captured else []
    )


def test_arguments_in_a_log_line() -> None:
    line = (
        "server_args=ServerArgs(model_path='/m, (x)', port=30000, api_key='hunter2', sizes=[1, 2], kind=<Enum.X: 1>, "
        "cfg={'a': (1, 2)}, quote='it\\'s', last=None)"
    )
    assert sglang_arguments.read(line) == {
        "model-path": "/m, (x)", "port": 30000, "api-key": "***", "sizes": [1, 2], "quote": "it's", "last": None,
    }  # fmt: skip
    assert "hunter2" not in repr(sglang_arguments.read(line))
    assert sglang_arguments.read(line[:60]) == {"model-path": "/m, (x)", "port": 30000}
    assert sglang_arguments.read("server_args=Other(a=1)") == {} == sglang_arguments.read("ServerArgs(a=1)")


@given(st.text())
def test_any_line_gives_arguments_or_none(text: str) -> None:
    assert isinstance(sglang_arguments.read(f"server_args=ServerArgs({text}"), dict)


ONE, TWO = Drift("page-size", "1", "64"), Drift("max-running-requests", "48", "3")


def test_what_was_accepted_shows_no_badge_until_it_changes() -> None:
    unit = UnitState("s.service", "loaded", "active", "running", invocation="i", main_pid=9)

    def badge(differences: tuple[Drift, ...], kept: str) -> str:
        service = ServiceSnapshot(
            "h/s", unit, http=HttpState(tok_s=9.0), release=ReleaseState(accepted_drift=kept), drift=differences, at=1.0
        )
        return service_state(HostSnapshot("h", "up", services=(service,), at=1.0), service, 1.0).word

    kept = drift.signature((ONE, TWO))
    assert badge((ONE, TWO), "") == "ready ≠"
    assert badge((TWO, ONE), kept) == "ready"
    assert badge((ONE,), kept) == "ready ≠", "one of them alone was not what was accepted"
    assert badge((ONE, Drift("max-running-requests", "48", "2")), kept) == "ready ≠"
    assert badge((), kept) == "ready" and drift.signature(()) == ""
