"""What would make it fit: each line is true when it is done, and a card that is too small says so."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from ddtree_console.domain.memory.estimate import estimate
from ddtree_console.domain.memory.types import Estimate, Inputs, ModelFacts
from tests.domain.memory import models
from tests.domain.memory.models import GiB, recorded, story
from tests.domain.memory.test_properties import launches, with_flags

LINE = re.compile(r"([a-z0-9-]+) ([\w.]+): (?:with mem-fraction-static ([\d.]+) to ([\d.]+)|([\d,]+) tokens)")


def done(inputs: Inputs, line: str) -> Estimate | None:
    """The estimate once the line's one flag is set; None for a line that is no flag."""
    found = LINE.match(line)
    if found is None or found.group(1) == "tp-size":
        return None
    flags: dict[str, Any] = {found.group(1): found.group(2)}
    if found.group(3):
        flags["mem-fraction-static"] = float(found.group(3))
    return estimate(with_flags(inputs, **flags))


def test_the_story_on_one_a6000_before_0_5_13() -> None:
    """48 requests x 16 draft tokens x 147 MiB: no fraction helps, fewer requests do."""
    found = estimate(story("0.5.12"))
    assert (found.verdict, found.binding, found.least) == ("does not fit", "hybrid state", None)
    state = next(t.bytes for t in found.terms if t.name == "hybrid state")
    assert state == pytest.approx(110 * GiB, rel=0.03)
    assert found.levers[0].startswith("max-running-requests ")
    better = done(story("0.5.12"), found.levers[0])
    assert better is not None and better.verdict != "does not fit" and better.requests == 3
    assert not any(line.startswith("not on this card") for line in found.levers)


def test_the_story_on_one_a6000_after() -> None:
    found = estimate(story("0.5.20"))
    assert (found.verdict, found.binding) == ("does not fit", "hybrid state")
    names = [line.split()[0] for line in found.levers]
    assert found.least is None
    assert names == ["speculative-num-draft-tokens", "mamba-ssm-dtype", "tp-size"]
    for line in found.levers[:-1]:
        better = done(story("0.5.20"), line)
        assert better is not None and better.verdict != "does not fit"


def test_a_tree_budget_is_the_lever_where_the_build_spells_it() -> None:
    inputs = story("0.5.20", speculative_algorithm="DDTREE", speculative_ddtree_budget=64)
    flags = {k: v for k, v in inputs.flags.items() if k != "speculative-num-draft-tokens"}
    found = estimate(replace(inputs, flags=flags))
    line = next(line for line in found.levers if line.startswith("speculative-ddtree-budget "))
    assert int(line.split()[1].rstrip(":")) < 64
    better = done(replace(inputs, flags=flags), line)
    assert better is not None and better.verdict != "does not fit"


def test_not_on_this_card() -> None:
    """27B in bf16 is larger than a card of 48 GB, and a quantized draft does not change that."""
    facts = ModelFacts("/m", {**models.QWEN36_27B, "quantization_config": {"quant_method": "fp8"}}, 56 * GiB)
    inputs = Inputs(facts, None, {}, (47 * GiB,), (models.A6000_TOTAL,), "0.5.20")
    found = estimate(inputs)
    assert (found.verdict, found.binding) == ("does not fit", "weights")
    assert found.levers[0].startswith("not on this card: weights take 56.0 of 46.4 GiB")
    assert found.levers[1].startswith("tp-size 2 on 2 GPUs like this one: ")
    two = with_flags(replace(inputs, free=(47 * GiB,) * 2, total=(models.A6000_TOTAL,) * 2), tp_size=2)
    assert estimate(two).verdict in ("fits", "tight")


def test_several_changes_together_where_no_single_one_is_enough() -> None:
    facts = ModelFacts("/m", models.QWEN36_27B, 56 * GiB)
    draft = ModelFacts("/d", models.DRAFT_27B, int(3.5 * GiB))
    flags = {"speculative-algorithm": "DFLASH", "speculative-num-draft-tokens": 64, "tp-size": 1}
    inputs = Inputs(facts, draft, flags, (36 * GiB,), (40 * GiB,), "0.5.12")
    found = estimate(inputs)
    assert found.least is None
    line = found.levers[0]
    assert line.startswith("together max-running-requests 1, ") and "quantization fp8" in line


def test_context_length_only_decides_about_one_request() -> None:
    short, long = (estimate(recorded(context_length=n)) for n in (8192, 500_000))
    assert short.tokens == long.tokens
    assert (long.verdict, long.binding) == ("tight", "kv pool")
    line = long.levers[0]
    assert "one request of 500,000 tokens (context-length) does not fit in the pool" in line
    needed = float(line.rsplit(" ", 1)[1])
    enough = estimate(recorded(context_length=500_000, mem_fraction_static=needed))
    assert enough.tokens is not None and enough.tokens >= 500_000 and enough.verdict == "fits"
    never = estimate(recorded(context_length=5_000_000)).levers[0]
    assert "at any fraction" in never


def test_fewer_requests_than_asked_for_is_tight() -> None:
    found = estimate(story("0.5.20", mamba_ssm_dtype="bfloat16"))
    assert (found.verdict, found.binding, found.requests) == ("tight", "hybrid state", 1)
    assert any("requests instead of 1" in line for line in found.levers)


def test_a_fraction_above_what_sglang_leaves_is_tight() -> None:
    found = estimate(recorded(mem_fraction_static=0.95))
    assert (found.verdict, found.binding) == ("tight", "reserve")
    assert found.levers == ("mem-fraction-static 0.875 leaves what SGLang itself would leave",)
    assert estimate(recorded(mem_fraction_static=0.875)).verdict == "fits"


def test_too_high_a_fraction_leaves_too_little_for_the_graphs() -> None:
    found = estimate(recorded(mem_fraction_static=0.99))
    assert (found.verdict, found.binding) == ("does not fit", "graphs")
    free = next(t.bytes for t in found.terms if t.name == "free")
    assert free < 0 and found.greatest is not None and found.greatest < 0.99


@pytest.mark.parametrize(
    ("release", "flag"), [("0.5.12", "disable-piecewise-cuda-graph"), ("0.5.23", "disable-prefill-cuda-graph")]
)
def test_graphs_that_leave_no_room_can_be_left_out_as_the_release_spells_it(release: str, flag: str) -> None:
    facts = ModelFacts("/m", models.QWEN3_8B, models.QWEN3_8B_SIZE)
    inputs = Inputs(facts, None, {"mem-fraction-static": 0.972}, (80 * GiB,), (80 * GiB,), release)
    found = estimate(inputs)
    assert (found.verdict, found.binding) == ("does not fit", "graphs")
    line = next(line for line in found.levers if line.startswith(f"{flag}: "))
    assert "tokens" in line
    assert estimate(replace(inputs, flags={**inputs.flags, flag: True})).verdict == "tight"


def test_unbalanced_gpus_are_refused_as_sglang_refuses_them() -> None:
    inputs = with_flags(replace(story(gpus=2), free=(47 * GiB, 20 * GiB)), tp_size=2)
    found = estimate(inputs)
    assert (found.verdict, found.binding) == ("does not fit", "free")
    assert found.levers == ("free GPU 1 of the slot",)
    assert "20.0 GiB free" in found.problems[0]


def test_fewer_gpus_than_tensor_parallel() -> None:
    found = estimate(story(gpus=1, tp_size=2))
    assert (found.verdict, found.binding) == ("does not fit", "free")
    assert "needs 2 GPUs and the slot has 1" in found.problems[0]


@given(launches())
@settings(max_examples=25, deadline=None)
def test_every_line_is_true_when_it_is_done(inputs: Inputs) -> None:
    found = estimate(inputs)
    if found.verdict != "does not fit":
        return
    for line in found.levers:
        better = done(inputs, line)
        if better is not None:
            assert better.verdict != "does not fit", line
