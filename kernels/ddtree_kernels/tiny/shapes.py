"""The sizes of the tiny pair, as the config.json files that are shipped say them."""

from __future__ import annotations

from typing import Any

BLOCK = 16
MASK_ID = 3
LAYER_IDS = (0, 2, 3)

TARGET: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "eos_token_id": [0, 2],
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 128,
    "initializer_range": 0.02,
    "intermediate_size": 384,
    "max_position_embeddings": 2048,
    "num_attention_heads": 4,
    "num_hidden_layers": 5,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 512,
}

DRAFT: dict[str, Any] = TARGET | {
    "architectures": ["DFlashDraftModel"],
    "block_size": BLOCK,
    "dflash_config": {"mask_token_id": MASK_ID, "target_layer_ids": list(LAYER_IDS)},
    "layer_types": ["full_attention"],
    "num_hidden_layers": 1,
    "num_target_layers": TARGET["num_hidden_layers"],
}
