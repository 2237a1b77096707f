"""Small configurations and weights made by counting, the same on every machine and in every release of torch."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import torch

from ddtree_kernels.models.libraries import library

PLAIN: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": False,
    "eos_token_id": 1,
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000.0,
    "tie_word_embeddings": False,
    "vocab_size": 48,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
TARGETS: dict[str, dict[str, Any]] = {
    "untied": PLAIN,
    "tied, one key head, biases": PLAIN
    | {"tie_word_embeddings": True, "num_key_value_heads": 1, "attention_bias": True},
    "yarn": PLAIN | {"rope_scaling": YARN},
    "window": PLAIN | {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
}
DRAFT: dict[str, Any] = PLAIN | {
    "architectures": ["DFlashDraftModel"],
    "block_size": 5,
    "dflash_config": {"mask_token_id": 47, "target_layer_ids": [0, 1]},
    "num_hidden_layers": 2,
    "num_target_layers": 3,
}
TOKENS = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 32]


def counted(name: str, size: tuple[int, ...]) -> torch.Tensor:
    """float64 weights that a plain formula fixes: norms near 1, matrices about as large as trained ones."""
    total = 1
    for side in size:
        total *= side
    scrambled = (torch.arange(total, dtype=torch.int64) * 7919 + zlib.crc32(name.encode()) % 104_729) * 31 % 10_007
    spread = (scrambled.double() / 10_007 - 0.5).reshape(size)
    return 1 + spread * 0.4 if len(size) == 1 and name.endswith("norm.weight") else spread * 0.9


def weights_of(names: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """Counted weights of every name."""
    return {name: counted(name, size) for name, size in names.items()}


def write_model(folder: Path, config: dict[str, Any], weights: dict[str, torch.Tensor], shards: int = 1) -> Path:
    """A Hugging Face folder with these weights in so many safetensors files."""
    save_file = library("safetensors.torch").save_file
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if shards == 1:
        save_file(weights, str(folder / "model.safetensors"))
        return folder
    files = {f"model-{i + 1:05}-of-{shards:05}.safetensors": list(weights)[i::shards] for i in range(shards)}
    for file, names in files.items():
        save_file({name: weights[name] for name in names}, str(folder / file))
    where = {name: file for file, names in files.items() for name in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}), encoding="utf-8")
    return folder
