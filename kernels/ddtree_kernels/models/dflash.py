"""The DFlash drafter (arXiv 2602.06036): one non-causal pass over a block of mask tokens behind the root.

Its layers are Qwen3's, with one difference: keys and values also come from the target's features, which a matrix and a
norm have brought to the hidden size. These context rows are the same in every round, so they are kept in a cache.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional as F

from ddtree_kernels.models import stack
from ddtree_kernels.models.api import Cache, DraftConfig
from ddtree_kernels.models.attention import View, block_words
from ddtree_kernels.models.qwen3 import Qwen3
from ddtree_kernels.models.trunk import Older, Trunk, as_tensor


def draft_names(config: DraftConfig) -> dict[str, tuple[int, ...]]:
    """Published name and size of every tensor of the drafter; embedding and head are the target's."""
    size = config.shape.hidden_size
    names: dict[str, tuple[int, ...]] = {
        "fc.weight": (size, len(config.layer_ids) * size),
        "hidden_norm.weight": (size,),
    }
    for i in range(config.shape.num_hidden_layers):
        names |= stack.layer_names(config.shape, f"layers.{i}.")
    names["norm.weight"] = (size,)
    return names


class DFlash:
    """A loaded drafter; see api.Draft."""

    def __init__(
        self, config: DraftConfig, weights: Mapping[str, torch.Tensor], target: Qwen3, drop: bool = False
    ) -> None:
        """From the tensors that draft_names lists, of the target's type and on its device; drop: as for Qwen3."""
        self._bytes = sum(int(tensor.nbytes) for tensor in weights.values())
        self.config = config
        self.target = target
        self.fc = weights["fc.weight"]
        self.hidden_norm = weights["hidden_norm.weight"]
        self.norm = weights["norm.weight"]
        self.layers = stack.build_layers(weights, "layers.", config.shape, drop)
        self.device: torch.device = self.fc.device
        self.dtype: torch.dtype = self.fc.dtype
        self._trunk = Trunk(config.shape, self.layers, self.norm)
        self._words = block_words(config.block_size, self.device)
        self._masks = torch.full((config.block_size,), config.mask_token_id, device=self.device)

    @property
    def block_size(self) -> int:
        """See api.Draft.block_size."""
        return self.config.block_size

    def extend(self, features: torch.Tensor, cache: Cache, start: int | torch.Tensor) -> None:
        """See api.Draft.extend."""
        mixed = F.linear(features, self.fc)
        self._trunk.context(stack.rms_norm(mixed, self.hidden_norm, self.config.shape.rms_norm_eps), cache, start)

    def draft(
        self,
        root: torch.Tensor,
        cache: Cache,
        length: int | torch.Tensor,
        *,
        pending: tuple[torch.Tensor, int | torch.Tensor] | None = None,
        max_length: int | None = None,
    ) -> torch.Tensor:
        """See api.Draft.draft."""
        older = None
        if pending is not None and self._trunk.fuses:
            features, before = pending
            older = Older(F.linear(features, self.fc), self.hidden_norm, as_tensor(before, self.device))
        elif pending is not None:
            self.extend(pending[0], cache, pending[1])
        view = View(length, self._words, None, max_length)
        first = root.reshape(1).to(self._masks.dtype)
        hidden, _ = self._trunk.run(self.target.embedding, self._masks, cache, view, first=first, older=older)
        return self.target.logits(hidden[1:])

    def weight_bytes(self) -> int:
        """See api.Draft.weight_bytes."""
        return self._bytes
