"""Estimates against what real starts measured: within 3 %, or half of the last digit that was printed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ddtree_console.domain.memory import case, defaults, pool, release, weights
from ddtree_console.domain.memory.estimate import estimate
from ddtree_console.domain.memory.shape import read
from ddtree_console.domain.memory.types import Estimate, Inputs, ModelFacts
from tests.domain.memory import models
from tests.domain.memory.models import GiB, recorded

MiB = 2**20


def near(found: float, measured: float, digit: float = 0.0) -> bool:
    """Within 3 %; `digit`: half of the last digit of a rounded figure comes on top."""
    return abs(found - measured) <= 0.03 * measured + digit


def size(estimate: Estimate, name: str) -> float:
    """A term in GiB."""
    return next((t.bytes for t in estimate.terms if t.name == name), 0) / GiB


def test_the_recorded_start_on_an_h200() -> None:
    found = estimate(recorded())
    assert found.verdict == "fits" and not found.levers
    assert near(size(found, "weights"), 1.18, 0.005)
    assert near(size(found, "draft"), 0.15, 0.005)
    assert found.tokens is not None and near(found.tokens, 321_771)
    assert near(size(found, "kv pool"), 2 * 17.18)
    assert near(size(found, "draft kv pool"), 2 * 3.07)
    assert found.requests == 48
    # two decode captures and a piecewise one
    assert near(size(found, "graphs"), 0.86 + 0.64 + 0.67, 0.015)
    # available_gpu_mem at the end of the start; activations come later
    activations = size(found, "reserve") - case.CONTEXT / GiB
    assert near(size(found, "free") + activations, 94.89)


@pytest.mark.parametrize(
    ("flags", "graphs"),
    [
        ({"disable_cuda_graph": True}, 0.67),
        ({"disable_cuda_graph": True, "disable_piecewise_cuda_graph": True}, 0.0),
    ],
)
def test_what_disable_cuda_graph_leaves_in_0_5_12(flags: dict[str, Any], graphs: float) -> None:
    assert near(size(estimate(recorded(**flags)), "graphs"), graphs, 0.005)


def test_a_wider_tree_widens_the_targets_graph_only() -> None:
    chain, tree = (estimate(recorded(speculative_num_draft_tokens=n)) for n in (16, 33))
    more = (33 - 16) * 48 * 151936 * pool.LOGITS / GiB
    assert size(tree, "graphs") - size(chain, "graphs") == pytest.approx(more)


def test_the_recorded_start_that_could_not_fit() -> None:
    found = estimate(recorded(mem_fraction_static=0.005))
    assert (found.verdict, found.binding, found.tokens) == ("does not fit", "weights", 0)
    # 1.18 of 139.19 GiB are the weights: the start needs more than that, and little more is enough
    assert found.least is not None and 1.18 / 139.19 < found.least < 0.012
    assert found.levers[0].startswith(f"mem-fraction-static {found.least:.3f} to ")
    fits = estimate(recorded(mem_fraction_static=found.least))
    assert fits.verdict != "does not fit" and fits.tokens


@pytest.mark.parametrize(
    ("config", "total"),
    [
        (models.QWEN3_4B, models.QWEN3_4B_SIZE),
        (models.QWEN3_8B, models.QWEN3_8B_SIZE),
        (models.QWEN3_30B, models.QWEN3_30B_SIZE),
    ],
)
def test_weights_from_the_config_alone(config: dict[str, Any], total: int) -> None:
    assert abs(weights.counted(read(config)) - total) / total < 0.001


@pytest.mark.parametrize(
    ("config", "tp", "width", "each"),
    [
        (models.QWEN3_4B, 1, 2.0, 144 * 1024),
        (models.QWEN3_8B, 1, 2.0, 144 * 1024),
        (models.QWEN3_8B, 1, 1.0, 72 * 1024),
        (models.QWEN3_8B, 2, 2.0, 72 * 1024),
        (models.QWEN3_8B, 16, 2.0, 18 * 1024),  # fewer KV heads than GPUs: each GPU keeps one
        (models.QWEN3_30B, 1, 2.0, 96 * 1024),
        (models.QWEN36_27B, 1, 2.0, 64 * 1024),
    ],
)
def test_kv_of_a_token(config: dict[str, Any], tp: int, width: float, each: int) -> None:
    assert case.kv_bytes(read(config), tp, width) == each


@pytest.mark.parametrize(
    ("config", "tp", "tokens", "k_gib"),
    [
        # a public report of 0.5.2x with fp8 weights on an H100
        (models.QWEN3_30B, 1, 392_920, 17.99),
        # sgl-project/sglang#15909, four GPUs, the text model of Qwen3-Omni-30B-A3B
        (models.QWEN3_30B, 4, 2_090_351, 23.92),
        # vllm-project/vllm#21348, Qwen3-235B-A22B-FP8 on 4x H100
        (models.QWEN3_235B, 4, 367_404, 8.23),
        # kvcache-ai/ktransformers#1870, Qwen3.5-397B-A17B on two GPUs
        (models.QWEN35_397B, 2, 580_364, 4.15),
    ],
)
def test_k_as_logged_by_others(config: dict[str, Any], tp: int, tokens: int, k_gib: float) -> None:
    assert near(tokens * case.kv_bytes(read(config), tp, 2.0) / 2 / GiB, k_gib)


def test_hybrid_state_as_logged_by_others() -> None:
    """kvcache-ai/ktransformers#1870: 82 slots, conv_state 0.13GB, ssm_state 7.29GB beside 580,364 tokens."""
    slot = case.slot_bytes(read(models.QWEN35_397B), 2, {})
    assert near((82 + 1) * slot / GiB, 0.13 + 7.29)
    cell = case.kv_bytes(read(models.QWEN35_397B), 2, 2.0)
    rest = 82 * slot + 580_364 * cell
    found = pool.solve(_raw(rest, slot, cell, sizing="first", draft_tokens=0, asked=1), 1.0)
    assert found.tokens == pytest.approx(580_364, rel=0.03)
    assert found.state == pytest.approx(82 * slot, rel=0.03)


def test_hybrid_state_of_qwen36_27b_as_logged_by_others() -> None:
    """A public log of a checkpoint of this shape: 360 slots, conv_state 0.99GB, ssm_state 50.77GB."""
    assert near(361 * case.slot_bytes(read(models.QWEN36_27B), 1, {}) / GiB, 0.99 + 50.77)


def test_snapshots_of_a_speculating_hybrid_as_logged_by_others() -> None:
    """A public log of DFLASH, radix cache off: 64 slots and as many requests of 16 draft tokens.

    conv_state 0.07GB, ssm_state 3.05GB, intermediate_ssm 48.75GB, intermediate_conv_window 0.43GB; K of 295,950 tokens
    4.52 GB, of the draft 3.39 GB.
    """
    shape = read(models.QWEN35_9B)
    slot, cell = case.slot_bytes(shape, 1, {}), case.kv_bytes(shape, 1, 2.0)
    assert near(295_950 * cell / 2 / GiB, 4.52)
    rest = int((0.07 + 3.05 + 48.75 + 0.43 + 2 * 4.52) * GiB)
    given = {"sizing": "padded", "draft_tokens": 16, "asked": 64, "radix": False}
    found = pool.solve(_raw(rest, slot, cell, **given), 1.0)
    assert found.requests == 64
    assert near(found.state / GiB, 0.07 + 3.05 + 48.75 + 0.43)


@pytest.mark.parametrize(("config", "measured"), [(models.QWEN3_30B, 2.7), (models.QWEN35_9B, 3.85)])
def test_breakable_prefill_graphs_as_logged_by_others(config: dict[str, Any], measured: float) -> None:
    """58 sizes up to 8192 tokens, in 0.5.2x. Fitted, not derived: within 10 %, and a real start corrects it."""
    flags = {"disable-decode-cuda-graph": True}
    facts = ModelFacts("/m", config, 10 * GiB)
    found = estimate(Inputs(facts, None, flags, (90 * GiB,), (models.RTX_PRO_6000_TOTAL,), "0.5.23"))
    assert size(found, "graphs") == pytest.approx(measured, rel=0.10)


def test_qwen3_30b_on_an_rtx_pro_6000_as_logged_by_others() -> None:
    """A public report of 0.5.13: 56.89 GB of weights, and a piecewise graph despite --disable-cuda-graph."""
    flags = {"mem-fraction-static": 0.9, "max-total-tokens": 4096, "disable-cuda-graph": True}
    facts = ModelFacts("/m", models.QWEN3_30B, models.QWEN3_30B_SIZE)
    found = estimate(Inputs(facts, None, flags, (95 * GiB,), (models.RTX_PRO_6000_TOTAL,), "0.5.13"))
    assert near(size(found, "weights"), 56.89)
    assert found.tokens == 4096 and size(found, "kv pool") == pytest.approx(2 * 0.19, abs=0.01)
    assert size(found, "graphs") == pytest.approx(0.88, rel=0.15)


def test_weights_on_one_of_four_gpus_as_logged_by_others() -> None:
    """A public report of Qwen3-14B at tp 4: 7.08 GB a GPU."""
    config = models.qwen3(5120, 40, 40, 17408, False)
    total = weights.counted(read(config))
    facts = ModelFacts("/m", config, total)
    found = estimate(Inputs(facts, None, {"tp-size": 4}, (23 * GiB,) * 4, (24 * GiB,) * 4, "0.5.5"))
    assert near(size(found, "weights"), 7.08)


def _raw(rest: int, slot: int, cell: int, **more: Any) -> pool.Case:
    """A case whose whole memory is `rest`."""
    given: dict[str, Any] = {
        "free": rest, "context": 0, "weights": 0, "draft": 0, "draft_inside": True, "cell": cell, "target_cell": cell,
        "draft_cell": 0, "activations": 0, "slot": slot, "context_length": 262144, **more,
    }  # fmt: skip
    return pool.Case(**given)


FP32, BF16 = int(147 * MiB), int(75 * MiB)
CELL = 64 * 1024 + 10240


def test_state_of_a_slot() -> None:
    shape = read(models.QWEN36_27B)
    assert near(case.slot_bytes(shape, 1, {}) / MiB, 147)
    assert near(case.slot_bytes(shape, 1, {"mamba-ssm-dtype": "bfloat16"}) / MiB, 75)
    assert near(16 * case.slot_bytes(shape, 1, {}) / GiB, 2.3)
    assert near(65 * case.slot_bytes(shape, 1, {}) / GiB, 9.3)


@pytest.mark.parametrize(
    ("rest", "sizing", "slot", "width", "asked", "requests", "tokens"),
    [
        # A6000, 27B in fp8: 7.45 GiB are left after the weights
        (7.45, "first", FP32, 16, 48, 0, None),
        (7.45, "first", FP32, 16, 8, 0, None),
        (7.45, "first", FP32, 16, 2, 2, 22_000),
        (7.45, "padded", FP32, 16, 48, 0, None),
        (7.45, "padded", BF16, 16, 48, 1, 67_000),
        (7.45, "padded", FP32, 17, 48, 0, None),
        # RTX PRO 6000, 27B in bf16: about 26 GiB
        (26.0, "padded", FP32, 16, 48, 3, None),
        (26.0, "padded", BF16, 16, 48, 7, None),
        (26.0, "padded", FP32, 65, 48, 0, None),
    ],
)
def test_worked_examples_of_a_hybrid(
    rest: float, sizing: str, slot: int, width: int, asked: int, requests: int, tokens: int | None
) -> None:
    found = pool.solve(_raw(int(rest * GiB), slot, CELL, sizing=sizing, draft_tokens=width, asked=asked), 1.0)
    assert found.requests == requests
    assert (found.stop == "") == bool(requests)
    if not requests:
        assert found.stop == "hybrid state"
    if tokens is not None:
        assert near(found.tokens, tokens)


@pytest.mark.parametrize(
    ("total", "number", "tp", "flags", "wanted"),
    [
        (models.A6000_TOTAL, (0, 5, 23), 1, {}, 0.853),
        (models.A6000_TOTAL, (0, 5, 23), 1, {"disable-prefill-cuda-graph": True}, 0.861),
        (models.RTX_PRO_6000_TOTAL, (0, 5, 23), 1, {}, 0.858),
        (models.H200_TOTAL, (0, 5, 23), 1, {}, 0.903),
        (models.A6000_TOTAL, (0, 4, 6), 1, {}, 0.88),
        (models.A6000_TOTAL, (0, 4, 6), 2, {}, 0.87),
    ],
)
def test_the_fraction_that_sglang_chooses(
    total: int, number: tuple[int, int, int], tp: int, flags: dict[str, Any], wanted: float
) -> None:
    rule = release.rules(number)
    prefills = len(defaults.prefill_sizes(defaults.chunk(flags, total, rule, tp)))
    prefills = prefills if release.prefill_graph(rule, flags, vision=False) else 0
    batch = defaults.largest_batch(flags, total, rule, tp, None)
    kept = defaults.reserved(flags, total, rule, tp, batch, prefills, False, True)
    assert defaults.fraction(total, rule, tp, kept, 0) == pytest.approx(wanted, abs=0.001)


def test_the_graph_sizes_of_the_recording() -> None:
    assert defaults.decode_sizes(256, 48, speculative=True, padding=True) == [
        1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 40, 44, 48,
    ]  # fmt: skip
    assert len(defaults.prefill_sizes(8192)) == 58


@pytest.mark.parametrize(
    ("number", "flags", "decode", "prefill"),
    [
        ("0.5.5", {"disable-cuda-graph": True, "enable-piecewise-cuda-graph": True}, False, False),
        ("0.5.9", {}, True, False),
        ("0.5.9", {"disable-cuda-graph": True, "enable-piecewise-cuda-graph": True}, False, True),
        ("0.5.12", {"disable-cuda-graph": True}, False, True),
        ("0.5.12", {"disable-piecewise-cuda-graph": True}, True, False),
        ("0.5.15", {"disable-cuda-graph": True}, False, False),
        ("0.5.23", {"cuda-graph-backend-prefill": "disabled"}, True, False),
        ("0.5.23", {"disable-decode-cuda-graph": True}, False, True),
    ],
)
def test_graph_flags_by_release(number: str, flags: dict[str, Any], decode: bool, prefill: bool) -> None:
    rule = release.rules(release.parse(number) or (0, 0, 0))
    assert release.decode_graph(rule, flags) is decode
    assert release.prefill_graph(rule, flags, vision=False) is prefill


def test_moe_on_two_gpus_and_where_it_does_not_fit() -> None:
    facts = ModelFacts("/models/30b", models.QWEN3_30B, models.QWEN3_30B_SIZE)
    one = Inputs(facts, None, {}, (47 * GiB,), (models.A6000_TOTAL,), "0.5.20")
    found = estimate(one)
    assert (found.verdict, found.binding, found.least) == ("does not fit", "weights", None)
    assert any(line.startswith("quantization fp8") for line in found.levers)
    two = replace(one, flags={"tp-size": 2}, free=(47 * GiB,) * 2, total=(models.A6000_TOTAL,) * 2)
    wide = estimate(two)
    assert wide.verdict == "fits"
    assert near(size(wide, "weights"), models.QWEN3_30B_SIZE / 2 / GiB)
    assert wide.bytes_per_token == 48 * 1024


def test_latent_attention_keeps_one_vector_a_layer() -> None:
    config = {
        **models.qwen3(2048, 27, 16, 10944, False), "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "n_routed_experts": 64, "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "first_k_dense_replace": 1,
    }  # fmt: skip
    assert case.kv_bytes(read(config), 1, 2.0) == (512 + 64) * 27 * 2
    assert case.kv_bytes(read(config), 8, 2.0) == (512 + 64) * 27 * 2
