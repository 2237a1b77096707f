"""What holds for any launch: more never gives less, the limits are limits, the terms are the card."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_console.domain.memory import pool
from ddtree_console.domain.memory.case import build
from ddtree_console.domain.memory.estimate import estimate
from ddtree_console.domain.memory.types import Inputs, ModelFacts
from tests.domain.memory import models
from tests.domain.memory.models import GiB

RELEASES = ("0.5.5", "0.5.9", "0.5.12", "0.5.13", "0.5.16", "0.5.20", "0.5.23", "")
DENSE = ((models.QWEN3_4B, models.QWEN3_4B_SIZE), (models.QWEN3_8B, models.QWEN3_8B_SIZE))
HYBRID = ((models.QWEN36_27B, 56 * GiB), (models.QWEN36_27B, 29 * GiB))


@st.composite
def launches(draw: st.DrawFn, models_of: Any = (*DENSE, (models.QWEN3_30B, models.QWEN3_30B_SIZE), *HYBRID)) -> Inputs:
    """A launch that an operator may ask for."""
    config, size = draw(st.sampled_from(models_of))
    free = draw(st.integers(4, 190)) * GiB
    flags: dict[str, Any] = {"mem-fraction-static": draw(st.integers(1, 999)) / 1000}
    if draw(st.booleans()):
        flags["max-running-requests"] = draw(st.integers(1, 300))
    if draw(st.booleans()):
        flags["kv-cache-dtype"] = draw(st.sampled_from(["auto", "fp8_e4m3", "fp4_e2m1"]))
    if draw(st.booleans()):
        flags["page-size"] = draw(st.sampled_from([1, 16, 64]))
    draft = None
    if draw(st.booleans()):
        flags["speculative-algorithm"] = draw(st.sampled_from(["DFLASH", "DDTREE", "EAGLE3"]))
        flags["speculative-num-draft-tokens"] = draw(st.integers(2, 300))
        draft = ModelFacts("/d", models.DRAFT_27B, 3 * GiB)
    flags.update(dict.fromkeys(draw(st.sets(st.sampled_from(["disable-cuda-graph", "disable-radix-cache"]))), True))
    number = draw(st.sampled_from(RELEASES))
    return Inputs(ModelFacts("/m", config, size), draft, flags, (free,), (free + GiB,), number)


def with_flags(inputs: Inputs, **flags: Any) -> Inputs:
    """The launch with other flags (underscores for dashes)."""
    return replace(inputs, flags={**inputs.flags, **{k.replace("_", "-"): v for k, v in flags.items()}})


@given(launches())
@settings(max_examples=60, deadline=None)
def test_the_terms_are_the_card(inputs: Inputs) -> None:
    found = estimate(inputs)
    assert found.verdict in ("fits", "tight", "does not fit")
    assert sum(term.bytes for term in found.terms) == found.capacity == inputs.free[0]
    assert all(term.bytes >= 0 for term in found.terms if term.name != "free")
    assert (found.verdict == "fits") == (found.binding == "")
    if found.verdict != "does not fit":
        assert found.tokens and found.requests
        assert next(term.bytes for term in found.terms if term.name == "free") >= 0


@given(launches())
@settings(max_examples=60, deadline=None)
def test_the_limits_are_limits(inputs: Inputs) -> None:
    found = estimate(inputs)
    assert (found.least is None) == (found.greatest is None)
    if found.least is None or found.greatest is None:
        assert found.verdict == "does not fit" and found.levers
        return
    assert 0 < found.least <= found.greatest < 1
    for inside in (found.least, found.greatest):
        assert estimate(with_flags(inputs, mem_fraction_static=inside)).verdict != "does not fit"
    case = build(inputs).case
    below = pool.solve(case, found.least - 0.001)
    assert found.least <= 0.001 or below.stop
    above = pool.solve(case, found.greatest + 0.001)
    assert found.greatest >= 0.999 or above.stop


@given(launches(DENSE), st.integers(1, 999), st.integers(1, 999))
@settings(max_examples=50, deadline=None)
def test_a_higher_fraction_never_gives_fewer_tokens(inputs: Inputs, one: int, other: int) -> None:
    case = build(inputs).case
    less, more = (pool.solve(case, f / 1000) for f in sorted((one, other)))
    assert less.tokens <= more.tokens and less.requests <= more.requests


@given(launches(HYBRID), st.integers(1, 999), st.integers(1, 999))
@settings(max_examples=50, deadline=None)
def test_for_a_hybrid_neither_by_more_than_one_slot(inputs: Inputs, one: int, other: int) -> None:
    """A slot more is taken from the tokens: one slot, or as many as one request more holds with its snapshots."""
    case = build(inputs).case
    less, more = (pool.solve(case, f / 1000) for f in sorted((one, other)))
    step = case.slot * (case.slots_each + case.draft_tokens + 1)
    assert less.requests <= more.requests
    assert less.tokens <= more.tokens + step // case.cell + case.page


@given(launches(), st.integers(1, 300), st.integers(1, 300))
@settings(max_examples=50, deadline=None)
def test_more_requests_never_give_more_tokens(inputs: Inputs, one: int, other: int) -> None:
    few, many = (with_flags(inputs, max_running_requests=n) for n in sorted((one, other)))
    wide, narrow = (pool.solve(build(made).case, 0.8) for made in (many, few))
    assert wide.tokens <= narrow.tokens
    if not wide.stop and wide.requests >= narrow.requests:
        assert wide.graphs >= narrow.graphs


@given(launches(HYBRID), st.integers(2, 200), st.integers(2, 200))
@settings(max_examples=50, deadline=None)
def test_a_wider_tree_never_runs_more_requests(inputs: Inputs, one: int, other: int) -> None:
    spec = {"speculative_algorithm": "DFLASH", "max_running_requests": 8}
    made = replace(inputs, draft=ModelFacts("/d", models.DRAFT_27B, 3 * GiB))
    wide, narrow = (
        pool.solve(build(with_flags(made, **spec, speculative_num_draft_tokens=n)).case, 0.8)
        for n in sorted((one, other), reverse=True)
    )
    assert wide.requests <= narrow.requests


@given(launches(), st.integers(1, 100))
@settings(max_examples=50, deadline=None)
def test_more_free_memory_never_hurts(inputs: Inputs, more: int) -> None:
    larger = replace(inputs, free=(inputs.free[0] + more * GiB,), total=(inputs.total[0] + more * GiB,))
    one, other = (pool.solve(build(made).case, 0.8) for made in (inputs, larger))
    assert one.requests <= other.requests and (not other.stop or one.stop)


@given(launches(), st.integers(2, 8), st.data())
@settings(max_examples=30, deadline=None)
def test_the_fullest_gpu_decides(inputs: Inputs, gpus: int, data: st.DataObject) -> None:
    gpus = data.draw(st.sampled_from([2, 4, 8])) if gpus > 2 else 2
    free = inputs.free[0]
    rest = data.draw(st.lists(st.integers(free, free * 100 // 91), min_size=gpus - 1, max_size=gpus - 1))
    place = data.draw(st.integers(0, gpus - 1))
    mixed = [*rest[:place], free, *rest[place:]]
    even = with_flags(replace(inputs, free=(free,) * gpus, total=(free + GiB,) * gpus), tp_size=gpus)
    odd = replace(even, free=tuple(mixed))
    one, other = estimate(even), estimate(odd)
    assert (one.tokens, one.requests, one.capacity) == (other.tokens, other.requests, other.capacity)
