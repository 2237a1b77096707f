"""Whatever was read or typed: never an exception, and what is not known says why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ddtree_console.domain.memory.estimate import estimate
from ddtree_console.domain.memory.types import Estimate, Inputs, ModelFacts
from tests.domain.memory import models
from tests.domain.memory.models import GiB, recorded

VERDICTS = ("fits", "tight", "does not fit", "not known")


def why(found: Estimate) -> str:
    """The one reason."""
    assert found.verdict == "not known" and found.tokens is None
    (problem,) = found.problems
    assert problem.startswith("not known, because ")
    return problem


def target(**config: Any) -> Inputs:
    """The recorded launch with other keys in the target's config; None removes one."""
    changed = {k: v for k, v in {**models.TARGET, **config}.items() if v is not None or k not in config}
    return replace(recorded(), target=ModelFacts("/m", changed))


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (target(num_hidden_layers=None), "config.json lacks num_hidden_layers"),
        (target(hidden_size=None), "config.json lacks hidden_size"),
        (target(num_hidden_layers=-28), "num_hidden_layers = '-28'"),
        (target(num_hidden_layers="28"), "num_hidden_layers = '28'"),
        (target(num_hidden_layers=10**12), "num_hidden_layers"),
        (target(vocab_size=True), "vocab_size = 'True'"),
        (target(head_dim=float("nan")), "head_dim = 'nan'"),
        (target(layer_types=["full_attention"]), "28 layers and 1 layer_types"),
        (target(layer_types=["sliding_attention"] * 28), "sliding-window"),
        (target(index_topk=2048), "index_topk is not modelled"),
        (target(hybrid_override_pattern="M-M*"), "hybrid_override_pattern is not modelled"),
        (replace(recorded(), target=ModelFacts("/m")), "config.json was not read"),
        (replace(recorded(), target=ModelFacts("/m", problems=("/m/config.json: Permission denied",))), "Permission"),
        (replace(recorded(), draft=None), "a draft model, and none was read"),
        (replace(recorded(), free=()), "free memory of the GPUs is not known"),
        (recorded(load_format="auto"), "no weights were found"),
        (recorded(mem_fraction_static="much"), "--mem-fraction-static is 'much', not a number"),
        (recorded(mem_fraction_static=1.5), "wanted above 0 and below 1"),
        (recorded(tp_size="two"), "--tp-size is 'two'"),
        (recorded(kv_cache_dtype="int3"), "--kv-cache-dtype int3 is not known"),
        (recorded(pp_size=2), "--pp-size is not modelled"),
        (recorded(cpu_offload_gb=8), "--cpu-offload-gb is not modelled"),
    ],
)
def test_what_is_not_known_says_why(inputs: Inputs, said: str) -> None:
    assert said in why(estimate(inputs))


def test_an_index_without_shards() -> None:
    lost = "/m/model.safetensors.index.json names 15 files, and none of them is there"
    inputs = recorded(load_format="auto")
    found = estimate(replace(inputs, target=ModelFacts("/m", models.TARGET, None, (lost,))))
    assert why(found) == f"not known, because the size of the model's weights is not known: {lost}"


def test_a_release_that_is_not_known_is_counted_as_the_newest_and_said() -> None:
    for release in ("", "main", "0.6.1"):
        found = estimate(replace(recorded(), release=release))
        assert found.verdict == "fits" and "counted as 0.5.23" in found.problems[0]


def test_texts_and_aliases_count_as_the_flags_they_are() -> None:
    plain = estimate(recorded())
    flags = {**recorded().flags, "mem-fraction-static": "0.3", "context-length": "8k", "tp": "1"}
    assert estimate(replace(recorded(), flags=flags)).tokens == plain.tokens
    flags.pop("mem-fraction-static")
    assert estimate(replace(recorded(), flags={**flags, "mem-fraction": "0.3"})).tokens == plain.tokens


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just([]), st.just({}),
    st.lists(st.integers(-5, 5), max_size=3),
)  # fmt: skip
KEYS = sorted(
    {*models.TARGET, *models.DRAFT, *models.QWEN3_30B, *models.QWEN36_27B, *models.QWEN36_27B["text_config"]}
    | {"kv_lora_rank", "qk_rope_head_dim", "first_k_dense_replace", "n_shared_experts", "quantization_config"}
)
NAMES = (
    "mem-fraction-static", "tp-size", "tp", "context-length", "max-running-requests", "max-total-tokens", "page-size",
    "kv-cache-dtype", "speculative-algorithm", "speculative-num-draft-tokens", "speculative-ddtree-budget",
    "mamba-ssm-dtype", "max-mamba-cache-size", "mamba-full-memory-ratio", "chunked-prefill-size", "base-gpu-id",
    "quantization", "load-format", "cuda-graph-max-bs", "disable-cuda-graph", "disable-radix-cache",
)  # fmt: skip


@given(
    st.sampled_from([models.TARGET, models.QWEN3_30B, models.QWEN36_27B]),
    st.dictionaries(st.sampled_from(KEYS), scalars, max_size=4),
    st.dictionaries(st.sampled_from(NAMES), scalars, max_size=4),
    st.lists(st.integers(-GiB, 200 * GiB), max_size=4),
    st.one_of(st.none(), st.integers()),
    st.text(max_size=10),
)
@example(models.QWEN3_30B, {"mlp_only_layers": True}, {}, [1], None, "")
@example(models.QWEN3_30B, {"mlp_only_layers": "1,2"}, {}, [1], None, "")
@settings(max_examples=150, deadline=None)
def test_nothing_raises(
    config: dict[str, Any], lies: dict[str, Any], flags: dict[str, Any], free: list[int], size: Any, release: str
) -> None:
    inner = config.get("text_config")
    lying = {**config, "text_config": {**inner, **lies}} if inner else {**config, **lies}
    inputs = Inputs(
        ModelFacts("/m", lying, size), ModelFacts("/d", {**models.DRAFT, **lies}, size),
        {**models.RECORDED, **flags}, tuple(free), tuple(free), release,
    )  # fmt: skip
    found = estimate(inputs)
    assert found.verdict in VERDICTS
    if found.verdict == "not known":
        assert why(found)
    elif found.terms:
        assert sum(term.bytes for term in found.terms) == found.capacity
