"""The Qwen3 dense target (Qwen3 technical report, arXiv 2505.09388): a causal stack with normed heads and GQA."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional as F

from ddtree_kernels.models import stack
from ddtree_kernels.models.api import Cache, TargetConfig
from ddtree_kernels.models.attention import View, chain_words
from ddtree_kernels.models.trunk import Trunk


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
        self._trunk = Trunk(config.shape, self.layers, self.norm)

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor | None,
        cache: Cache,
        start: int | torch.Tensor,
        *,
        depths: torch.Tensor | None = None,
        visibility: torch.Tensor | None = None,
        features: bool = True,
        max_length: int | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See api.Target.forward."""
        words = chain_words(tokens.shape[0], self.device) if visibility is None else visibility
        below = positions - start if depths is None and positions is not None else depths
        view = View(start, words, below, max_length)
        return self._trunk.run(self.embedding, tokens, cache, view, self.layer_ids if features else ())

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """See api.Target.logits."""
        return F.linear(hidden, self.head)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """See api.Target.embed."""
        return F.embedding(tokens, self.embedding)

    def weight_bytes(self) -> int:
        """See api.Target.weight_bytes."""
        return self._bytes
