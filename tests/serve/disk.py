"""A random pair as Hugging Face folders: of the tiny pair's architectures, smaller still, with one token a byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from ddtree_kernels.models import draft_names, read_draft_config, read_target_config, target_names
from ddtree_kernels.tiny.shapes import DRAFT, TARGET

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>")
VOCABULARY = 260
BLOCK = 4
SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "head_dim": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 512,
}


def write_tokenizer(folder: Path) -> None:
    """Special tokens 0 to 3, then the 256 bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))


def write_weights(folder: Path, names: dict[str, tuple[int, ...]], seed: int) -> None:
    """Normal matrices, norms of one."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.ones(size) if len(size) == 1 else torch.randn(size, generator=generator) * 0.3
        for name, size in names.items()
    }
    save_file({name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}, folder / "model.safetensors")


def write_pair(folder: Path, *, target: dict[str, Any] | None = None, draft: dict[str, Any] | None = None) -> Path:
    """target/ and draft/ in this folder; what is given replaces fields of their config.json."""
    for name, config in (("target", TARGET | SMALL | (target or {})), ("draft", DRAFT | SMALL | (draft or {}))):
        (folder / name).mkdir(parents=True)
        if name == "draft":
            config = config | {"num_hidden_layers": 1, "num_target_layers": 2, "block_size": BLOCK}
            config["dflash_config"] = {"mask_token_id": 3, "target_layer_ids": [0, 1]}
            config = config | (draft or {})
        (folder / name / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder / "target")
    write_weights(folder / "target", target_names(read_target_config(folder / "target")), 1)
    write_weights(folder / "draft", draft_names(read_draft_config(folder / "draft")), 2)
    return folder
