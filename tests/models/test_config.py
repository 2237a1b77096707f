"""config.json: published ones are read, unsupported and broken ones get one line each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_kernels.models import ModelError, read_target_config
from ddtree_kernels.models.config import draft_config, target_config
from tests.models.cases import DRAFT, PLAIN

FILE = Path("model/config.json")
# The values that Qwen/Qwen3-8B and z-lab/Qwen3-8B-DFlash-b16 publish.
QWEN3_8B: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 12288, "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "qwen3",
    "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "use_cache": True, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
QWEN3_8B_DFLASH: dict[str, Any] = QWEN3_8B | {
    "architectures": ["DFlashDraftModel"], "auto_map": {"AutoModel": "dflash.DFlashDraftModel"}, "block_size": 16,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]}, "dtype": "bfloat16",
    "layer_types": ["full_attention"] * 5, "max_window_layers": 5, "num_hidden_layers": 5, "num_target_layers": 36,
}  # fmt: skip


def test_a_published_target() -> None:
    config = target_config(QWEN3_8B, FILE, {"eos_token_id": [151645, 151643]})
    assert (config.vocab_size, config.tied, config.stop_ids) == (151936, False, (151645, 151643))
    assert config.shape.kv_bytes(2) == 144 * 1024  # 144 KiB a token in bf16
    assert config.shape.windows == (None,) * 36
    assert config.shape.rope.theta == 1e6


def test_a_published_draft() -> None:
    config = draft_config(QWEN3_8B_DFLASH, FILE)
    assert (config.block_size, config.mask_token_id, config.layer_ids) == (16, 151669, (1, 9, 17, 25, 33))
    assert config.target_layers == 36
    assert config.shape.kv_bytes(2) == 20480


def test_a_newer_draft_with_windows_and_rope_parameters() -> None:
    raw = {key: value for key, value in QWEN3_8B_DFLASH.items() if key not in ("rope_theta", "block_size")} | {
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000},
        "dflash_config": {"block_size": 8, "mask_token_id": 9, "target_layer_ids": [1, 5]},
        "use_sliding_window": True,
        "sliding_window": 2048,
        "layer_types": ["sliding_attention"] * 4 + ["full_attention"],
    }
    config = draft_config(raw, FILE)
    assert (config.block_size, config.shape.rope.theta, config.shape.windows) == (8, 1e7, (2048,) * 4 + (None,))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"architectures": ["Qwen3MoeForCausalLM"]}, "architecture Qwen3MoeForCausalLM is not supported"),
        ({"architectures": None}, "architecture unknown is not supported"),
        ({"num_key_value_heads": 3}, "4 attention heads are no multiple of 3 key heads"),
        ({"hidden_size": None}, "hidden_size is None, not a whole number of at least 1"),
        ({"vocab_size": True}, "vocab_size is True, not a whole number"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "rope type 'longrope' is not supported"),
        ({"rms_norm_eps": "x"}, "rms_norm_eps is 'x', not a number above 0"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantised weights are not supported"),
        ({"head_dim": 15}, "head_dim is 15"),
    ],
)
def test_what_is_not_supported_is_said(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelError) as caught:
        target_config(PLAIN | change, FILE)
    assert says in str(caught.value)
    assert str(FILE) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"dflash_config": None}, "this is no DFlash draft model"),
        ({"architectures": ["DFlash2DraftModel"]}, "architecture DFlash2DraftModel is not supported"),
        ({"block_size": 1}, "block_size is 1, not a whole number of at least 2"),
        ({"dflash_config": {"target_layer_ids": [0, 1]}}, "mask_token_id is None"),
        ({"dflash_config": {"mask_token_id": 1, "target_layer_ids": [-1]}}, "target_layer_ids is [-1]"),
    ],
)
def test_what_is_no_draft_is_said(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelError) as caught:
        draft_config(DRAFT | change, FILE)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"), [("{", "is no JSON"), ("[1]", "holds no JSON object"), (None, "cannot be read")]
)
def test_a_broken_file_is_one_line(tmp_path: Path, text: str | None, says: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ModelError) as caught:
        read_target_config(tmp_path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 99) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(DRAFT)), ANYTHING)
def test_any_value_anywhere_is_read_or_refused(name: str, value: Any) -> None:
    for read, raw in ((target_config, PLAIN), (draft_config, DRAFT)):
        try:
            read(json.loads(json.dumps(raw | {name: value})), FILE)
        except ModelError as error:
            assert str(FILE) in str(error)
