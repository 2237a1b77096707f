"""Random pairs of the real architectures, small enough to run a thousand rounds in a second or two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ddtree_kernels.decode.engine import Engine, reserve
from ddtree_kernels.decode.graphs import capture
from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.models.api import DraftConfig, LayerShape, Pair, Rope, TargetConfig
from ddtree_kernels.models.cache import Cache
from ddtree_kernels.models.dflash import DFlash, draft_names
from ddtree_kernels.models.qwen3 import Qwen3, target_names

BLOCK = 5


class Letters:
    """A tokenizer of single letters: token i is chr(97 + i)."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - 97 for letter in text]

    def decode(self, ids: Any) -> str:
        return "".join(chr(97 + token) for token in ids)

    def chat(self, messages: Any) -> str:
        return "".join(message["content"] for message in messages)


def shape(layers: int) -> LayerShape:
    return LayerShape(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        rms_norm_eps=1e-6,
        rope=Rope(10000.0),
        attention_bias=False,
        max_position_embeddings=4096,
        windows=(None,) * layers,
    )


def weights(names: dict[str, tuple[int, ...]], dtype: torch.dtype, seed: int, scale: float) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for name, size in names.items():
        if len(size) == 1:
            out[name] = torch.ones(size, dtype=dtype)
        else:
            spread = scale if "lm_head" in name else 1.5
            out[name] = (torch.randn(size, generator=generator, dtype=torch.float64) * spread).to(dtype)
    return out


def pair(
    dtype: torch.dtype = torch.float64, vocab: int = 6, seed: int = 0, scale: float = 0.3, layers: int = 2
) -> Pair:
    """A pair that agrees now and then, since its vocabulary is so small. scale: how sure the target is."""
    config = TargetConfig(shape(layers), vocab, False, (), "Qwen3ForCausalLM")
    target = Qwen3(config, weights(target_names(config), dtype, seed, scale))
    draft_config = DraftConfig(shape(1), vocab, BLOCK, vocab - 1, tuple(range(layers)), layers)
    draft = DFlash(draft_config, weights(draft_names(draft_config), dtype, seed + 1, scale), target)
    target.layer_ids = draft_config.layer_ids
    return Pair(target, draft, Letters(vocab), Path("random"))


def engine(pair: Pair, settings: Settings, context: int = 256, **options: Any) -> Engine:
    """An engine whose caches hold `context` tokens."""
    draft = pair.draft if settings.drafts else None
    fitted = settings.fitted(draft.block_size) if draft is not None else settings
    rows = context + reserve(fitted, draft.block_size if draft is not None else 1)
    cache = Cache(pair.target.config.shape, rows, pair.target.device, pair.target.dtype)
    draft_cache = None if draft is None else Cache(draft.config.shape, rows, draft.device, draft.dtype)
    return Engine(pair, fitted, cache, draft_cache, **options)


def served(pair: Pair, settings: Settings, context: int = 256) -> Engine:
    """An engine as a server has it: on a GPU its rounds are captured."""
    if pair.target.device.type != "cuda":
        return engine(pair, settings, context)
    made = engine(pair, settings, context, static=True)
    capture(made)
    return made
