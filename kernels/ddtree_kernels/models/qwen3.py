"""The Qwen3 dense target (Qwen3 technical report, arXiv 2505.09388): a causal stack with normed heads and GQA."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional as F

from ddtree_kernels.models import rope, stack
from ddtree_kernels.models.api import Cache, TargetConfig
from ddtree_kernels.models.attention import View, attend, chain_words


def target_names(config: TargetConfig) -> dict[str, tuple[int, ...]]:
    """Published name and size of every tensor of the target."""
    size = config.shape.hidden_size
    names: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, size)}
    for i in range(config.shape.num_hidden_layers):
        names |= stack.layer_names(config.shape, f"model.layers.{i}.")
    names["model.norm.weight"] = (size,)
    if not config.tied:
        names["lm_head.weight"] = (config.vocab_size, size)
    return names


class Qwen3:
    """A loaded target; see api.Target."""

    def __init__(self, config: TargetConfig, weights: Mapping[str, torch.Tensor], drop: bool = False) -> None:
        """From the tensors that target_names lists, all of one type on one device; drop: see stack.build_layers."""
        self._bytes = sum(int(tensor.nbytes) for tensor in weights.values())
        self.config = config
        self.layer_ids: tuple[int, ...] = ()
        self.embedding = weights["model.embed_tokens.weight"]
        self.head = self.embedding if config.tied else weights["lm_head.weight"]
        self.norm = weights["model.norm.weight"]
        self.layers = stack.build_layers(weights, "model.layers.", config.shape, drop)
        self.device: torch.device = self.embedding.device
        self.dtype: torch.dtype = self.embedding.dtype
        self._turns = rope.frequencies(config.shape.rope, config.shape.head_dim).to(self.device)

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        cache: Cache,
        start: int | torch.Tensor,
        *,
        visibility: torch.Tensor | None = None,
        features: bool = True,
        max_length: int | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See api.Target.forward."""
        shape = self.config.shape
        words = chain_words(tokens.shape[0], self.device) if visibility is None else visibility
        view = View(start, words, positions - start, max_length)
        cosines, sines = rope.turns(positions, self._turns, shape.rope, self.dtype)
        x = self.embed(tokens)
        taken: dict[int, torch.Tensor] = {}
        for i, layer in enumerate(self.layers):
            normed = stack.rms_norm(x, layer.input_norm, shape.rms_norm_eps)
            query, key, value = stack.project(layer, shape, normed, cosines, sines)
            cache.write(i, start, key, value)
            x = stack.finish(layer, shape, x, attend(query, cache, i, view, shape.windows[i]))
            if features and i in self.layer_ids:
                taken[i] = x
        hidden = stack.rms_norm(x, self.norm, shape.rms_norm_eps)
        return hidden, torch.cat([taken[i] for i in self.layer_ids], dim=-1) if taken else None

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """See api.Target.logits."""
        return F.linear(hidden, self.head)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """See api.Target.embed."""
        return F.embedding(tokens, self.embedding)

    def weight_bytes(self) -> int:
        """See api.Target.weight_bytes."""
        return self._bytes
