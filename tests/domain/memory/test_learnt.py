"""A real start's log corrects the next estimate of that launch on that host, and of nothing else."""

from __future__ import annotations

import lzma
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_console.domain.engines.sglang_log import SglangReader
from ddtree_console.domain.memory import case, learnt
from ddtree_console.domain.memory.estimate import estimate
from ddtree_console.domain.memory.types import Estimate, Inputs
from tests.domain.memory import models
from tests.domain.memory.models import GiB, recorded

PYTHON = "/srv/venv/bin/python3"
MODEL = "/models/qwen3-target"


@cache
def recording() -> dict[str, Any]:
    """The figures that the log reader finds in the healthy start's recording."""
    packed = resources.files("ddtree_console.demo") / "recordings" / "dflash-healthy.log.xz"
    reader, found = SglangReader(), {}
    for line in lzma.decompress(packed.read_bytes()).decode("utf-8", "replace").split("\n"):
        for fact in reader.feed(line.lstrip(" ").partition(" ")[2]):  # the time, then what was printed
            if fact.kind == "value":
                found[fact.name] = fact.value
    return found


def values() -> dict[str, Any]:
    """A copy of them."""
    return dict(recording())


def start(**more: Any) -> dict[str, Any]:
    """What the host keeps of that start."""
    return {
        "release": "0.5.12", "python": PYTHON, "model": MODEL, "flags": dict(models.RECORDED), "measured": values(),
        "free": [models.H200_FREE], "total": [models.H200_TOTAL], **more,
    }  # fmt: skip


def corrected(inputs: Inputs, *starts: dict[str, Any], model: str = MODEL, python: str = PYTHON) -> Estimate:
    """The estimate with what those starts taught."""
    residual, words = learnt.of(starts, inputs, model, python)
    return estimate(replace(inputs, residual=residual, learnt=words))


def term(found: Estimate, name: str) -> float:
    """A term in GiB."""
    return next(t.bytes for t in found.terms if t.name == name) / GiB


def test_the_log_tells_what_is_compared() -> None:
    assert {k: v for k, v in values().items() if k in learnt.MEASURED} == {
        "available GB": 139.13,
        "weights GB": 1.18,
        "kv cache tokens": 321771,
        "kv cache GB": 34.36,
        "graphs GB": 0.86,
        "piecewise graphs GB": 0.67,
        "draft weights GB": 0.15,
        "draft kv cache GB": 6.14,
        "draft graphs GB": 0.64,
        "max_total_num_tokens": 321771,
        "max_running_requests": 48,
    }


def test_the_next_estimate_is_what_was_measured() -> None:
    found = corrected(recorded(), start())
    assert found.tokens == pytest.approx(321_771, abs=2)
    assert term(found, "weights") == pytest.approx(1.18, abs=1e-6)
    assert term(found, "draft") == pytest.approx(0.15, abs=1e-6)
    assert term(found, "graphs") == pytest.approx(0.86 + 0.67 + 0.64, abs=1e-6)
    assert sum(t.bytes for t in found.terms) == found.capacity
    assert (
        found.learnt
        == f"corrected by the last start here: 321,771 tokens, {estimate(recorded()).tokens:,} were estimated"
    )


def test_a_wrong_constant_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose driver takes 2 GiB more: one start is enough, also for another fraction."""
    monkeypatch.setattr(case, "CONTEXT", case.CONTEXT + 2 * GiB // 3)
    monkeypatch.setattr(learnt, "CONTEXT", case.CONTEXT)
    before, after = estimate(recorded()), corrected(recorded(), start())
    assert before.tokens is not None and after.tokens is not None
    assert abs(after.tokens - 321_771) <= 2 < abs(before.tokens - 321_771)
    monkeypatch.undo()
    good = estimate(recorded(mem_fraction_static=0.6))
    monkeypatch.setattr(case, "CONTEXT", case.CONTEXT + 2 * GiB // 3)
    monkeypatch.setattr(learnt, "CONTEXT", case.CONTEXT)
    other = corrected(recorded(mem_fraction_static=0.6), start())
    assert other.tokens == pytest.approx(good.tokens, rel=0.005)


@pytest.mark.parametrize(
    "foreign",
    [
        {"release": "0.5.13"},
        {"python": "/other/venv/bin/python3"},
        {"measured": None},
        {"measured": {"weights GB": "1.18"}, "model": "/models/other"},
    ],
)
def test_another_build_teaches_nothing(foreign: dict[str, Any]) -> None:
    assert learnt.of([start(**foreign)], recorded(), MODEL, PYTHON) == ({}, "")


def test_another_model_teaches_only_what_the_build_takes() -> None:
    residual, words = learnt.of([start(model="/models/other")], recorded(), MODEL, PYTHON)
    assert set(residual) == {"reserve"} and "another model" in words
    # an older start of this very launch is worth more than a newer one of another model
    both = learnt.of([start(), start(model="/models/other")], recorded(), MODEL, PYTHON)[0]
    assert set(both) > {"reserve"}


def test_the_newest_start_counts() -> None:
    old = start(measured={**values(), "weights GB": 1.3})
    assert term(corrected(recorded(), old, start()), "weights") == pytest.approx(1.18)
    assert term(corrected(recorded(), start(), old), "weights") == pytest.approx(1.3)


def test_what_cannot_be_its_own_memory_is_left_out() -> None:
    """Another process took 60 GiB in between, or a line was misread."""
    mad = start(measured={**values(), "weights GB": 61.0, "available GB": 70.0, "graphs GB": 500.0})
    residual, _ = learnt.of([mad], recorded(), MODEL, PYTHON)
    assert "weights" not in residual and "reserve" not in residual and "graphs" not in residual


def test_without_the_free_memory_of_then_the_pool_still_comes_right() -> None:
    found = corrected(recorded(), start(free=[], total=[]))
    assert found.tokens == pytest.approx(321_771, abs=2)
    assert "reserve" not in learnt.of([start(free=[])], recorded(), MODEL, PYTHON)[0]


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(start())), anything, max_size=4), anything)
@settings(max_examples=80, deadline=None)
def test_whatever_stands_in_the_file(damage: dict[str, Any], measured: Any) -> None:
    broken = {**start(), **damage}
    figures = broken["measured"]
    if isinstance(figures, dict):
        broken["measured"] = {**figures, "weights GB": measured, "kv cache tokens": measured}
    residual, words = learnt.of([broken], recorded(), MODEL, PYTHON)
    assert isinstance(words, str) and all(type(size) is int for size in residual.values())
    assert estimate(replace(recorded(), residual=residual)).verdict in ("fits", "tight", "does not fit")
