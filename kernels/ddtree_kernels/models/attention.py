"""Attention over the static cache: our kernel on a GPU, torch's own elsewhere and in what the kernel does not take.

The kernel's reference is its specification, not its replacement: on a CPU it repeats every key head in float32, and in
float64 it would round. Tests hold both to each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch.nn import functional as F

from ddtree_kernels.models.api import Cache
from ddtree_kernels.ops.checks import FLOAT_TYPES
from ddtree_kernels.ops.tree_attention import tree_attention
from ddtree_kernels.ops.tree_attention.op import HEAD_SIZES
from ddtree_kernels.ops.tree_attention.reference import tree_bits


def chain_words(nodes: int, device: torch.device) -> torch.Tensor:
    """Visibility words int64 [nodes, ceil(nodes/64)] of a chain: node i sees 0 .. i."""
    first = torch.arange((nodes + 63) // 64, device=device) * 64
    seen = (torch.arange(1, nodes + 1, device=device)[:, None] - first).clamp(0, 64)
    return torch.where(seen == 64, -1, (1 << seen.clamp(max=63)) - 1)


def block_words(nodes: int, device: torch.device) -> torch.Tensor:
    """Visibility words of a block whose nodes all see each other."""
    return chain_words(nodes, device)[-1:].repeat(nodes, 1)


@dataclass(eq=False)
class View:
    """What n new rows see, the same in every layer: the context before start, and the new rows by visibility words.

    below: [n], the rows' positions behind start; None = 0, 1 ..."""

    start: int | torch.Tensor
    words: torch.Tensor
    below: torch.Tensor | None
    max_length: int | None
    _masks: dict[int | None, torch.Tensor] = field(default_factory=dict)

    @cached_property
    def lengths(self) -> torch.Tensor:
        """start as [1] on the device."""
        if isinstance(self.start, int):
            return torch.full((1,), self.start, device=self.words.device)
        return self.start.reshape(1)

    @cached_property
    def depths(self) -> torch.Tensor:
        """[n], as below, always there."""
        return torch.arange(self.words.shape[0], device=self.words.device) if self.below is None else self.below

    @cached_property
    def at(self) -> torch.Tensor:
        """[n], the rows' positions."""
        return self.start + self.depths

    def mask(self, rows: int, window: int | None) -> torch.Tensor:
        """bool [n, rows] of the cache's first rows; a row without any bit sees itself, or its sum would be empty."""
        if window not in self._masks:
            nodes = self.words.shape[0]
            own = tree_bits(self.words, nodes) | torch.eye(nodes, dtype=torch.bool, device=self.words.device)
            behind = torch.arange(rows, device=self.words.device) - self.start
            seen = (behind < 0) | (own[:, behind.clamp(0, nodes - 1)] & (behind < nodes))
            if window is not None:
                at = torch.where(behind < 0, behind, self.depths[behind.clamp(0, nodes - 1)])
                seen &= self.depths[:, None] - at < window
            self._masks[window] = seen
        return self._masks[window]


def on_kernels(tensor: torch.Tensor, size: int) -> bool:
    """Whether rows like this tensor's, with heads of this size, run on our kernels."""
    return tensor.is_cuda and tensor.dtype in FLOAT_TYPES and size in HEAD_SIZES


def attend(query: torch.Tensor, cache: Cache, layer: int, view: View, window: int | None) -> torch.Tensor:
    """[n, H, D] of query [n, H, D]; the new rows' keys and values are already in the cache."""
    nodes, _, size = query.shape
    keys, values = cache.keys[layer], cache.values[layer]
    if on_kernels(query, size):
        out = tree_attention(
            query[None],
            keys,
            values,
            view.words[None],
            view.lengths,
            depths=view.depths[None].int() if window is not None else None,
            sliding_window=window,
            max_length=view.max_length,
        )
        assert isinstance(out, torch.Tensor)
        return out[0]
    rows = view.start + nodes if isinstance(view.start, int) else cache.rows
    out = F.scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        keys[:, :rows].transpose(1, 2),
        values[:, :rows].transpose(1, 2),
        view.mask(rows, window),
        enable_gqa=True,
    )
    return out[0].transpose(0, 1)
