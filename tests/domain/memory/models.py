"""Configs of published models, cut to the keys that decide memory, with the total_size of their safetensors index.

Qwen/Qwen3-4B, Qwen3-8B, Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3.5-9B, Qwen3.5-397B-A17B and Qwen3.6-27B on Hugging Face;
the pair of the recordings (Qwen3-0.6B's shape and a DFlash draft of five layers, both with dummy weights).
"""

from __future__ import annotations

from typing import Any

from ddtree_console.domain.memory.types import Inputs, ModelFacts

GiB = 2**30
H200_TOTAL = 150754820096
H200_FREE = H200_TOTAL - 644939776
"""total less what the driver keeps, as NVML reported it of the recordings' H200."""
A6000_TOTAL = 49140 * 2**20
RTX_PRO_6000_TOTAL = 97887 * 2**20

_QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "num_key_value_heads": 8,
    "sliding_window": None,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 151936,
}


def qwen3(hidden: int, layers: int, heads: int, inner: int, tied: bool, **more: Any) -> dict[str, Any]:
    """A dense Qwen3."""
    return {
        **_QWEN3,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "tie_word_embeddings": tied,
        **more,
    }


TARGET = qwen3(1024, 28, 16, 3072, True)
DRAFT = qwen3(
    1024, 5, 16, 3072, True,
    architectures=["DFlashDraftModel"], block_size=16, num_target_layers=28, layer_types=["full_attention"] * 5,
    dflash_config={"mask_token_id": 151669, "target_layer_ids": [1, 7, 13, 19, 25]},
)  # fmt: skip
QWEN3_4B, QWEN3_4B_SIZE = qwen3(2560, 36, 32, 9728, True), 8044936192
QWEN3_8B, QWEN3_8B_SIZE = qwen3(4096, 36, 32, 12288, False), 16381470720
_MOE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_key_value_heads": 4,
}
QWEN3_30B = qwen3(2048, 48, 32, 6144, False, **_MOE, moe_intermediate_size=768)
QWEN3_30B_SIZE = 61064245248
QWEN3_235B = qwen3(4096, 94, 64, 12288, False, **_MOE, moe_intermediate_size=1536)


def hybrid(hidden: int, layers: int, heads: int, kv_heads: int, value_heads: int, **more: Any) -> dict[str, Any]:
    """A Qwen3.5 or 3.6: three layers of GDN before each one of attention, within a vision model's config."""
    text = {
        "dtype": "bfloat16",
        "full_attention_interval": 4,
        "head_dim": 256,
        "hidden_size": hidden,
        "layer_types": [("full" if (i + 1) % 4 == 0 else "linear") + "_attention" for i in range(layers)],
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": value_heads,
        "linear_value_head_dim": 128,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": kv_heads,
        "vocab_size": 248320,
        **more,
    }
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "tie_word_embeddings": False,
        "text_config": text,
        "vision_config": {"hidden_size": 1152, "depth": 27},
    }


QWEN36_27B = hybrid(5120, 64, 24, 4, 48, intermediate_size=17408)
QWEN35_9B = hybrid(4096, 32, 16, 4, 32, intermediate_size=12288)
QWEN35_397B = hybrid(
    4096, 60, 32, 2, 64, num_experts=512, num_experts_per_tok=10, moe_intermediate_size=1024,
    shared_expert_intermediate_size=1024,
)  # fmt: skip
DRAFT_27B = qwen3(5120, 5, 32, 17408, False, architectures=["DFlashDraftModel"], block_size=16, vocab_size=248320)

RECORDED = {
    "load-format": "dummy",
    "mem-fraction-static": 0.3,
    "context-length": 8192,
    "speculative-algorithm": "DFLASH",
    "speculative-draft-model-path": "/models/qwen3-dflash-draft",
}


def recorded(**flags: Any) -> Inputs:
    """The launch of the recordings on their H200, with other flags (underscores for dashes)."""
    given = {**RECORDED, **{name.replace("_", "-"): value for name, value in flags.items()}}
    return Inputs(
        ModelFacts("/models/qwen3-target", TARGET), ModelFacts("/models/qwen3-dflash-draft", DRAFT), given,
        (H200_FREE,), (H200_TOTAL,), "0.5.12",
    )  # fmt: skip


def story(release: str = "0.5.12", gpus: int = 1, **flags: Any) -> Inputs:
    """Qwen3.6-27B in fp8 with a DFlash draft on A6000s."""
    given = {
        "mem-fraction-static": 0.85,
        "speculative-algorithm": "DFLASH",
        "speculative-num-draft-tokens": 16,
        "mamba-radix-cache-strategy": "no_buffer",
        **{name.replace("_", "-"): value for name, value in flags.items()},
    }
    config = {**QWEN36_27B, "quantization_config": {"quant_method": "fp8"}}
    return Inputs(
        ModelFacts("/models/27b-fp8", config, 29 * GiB), ModelFacts("/models/draft", DRAFT_27B, int(3.5 * GiB)), given,
        (int(47.6 * GiB),) * gpus, (A6000_TOTAL,) * gpus, release,
    )  # fmt: skip
