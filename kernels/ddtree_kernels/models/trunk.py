"""One pass of a stack over new rows, from tokens to the last norm: what target and drafter have in common.

In plain torch it is the specification and what a CPU runs; on a GPU the same steps are fused (fused.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from ddtree_kernels.models import fused, rope, stack
from ddtree_kernels.models.api import Cache, LayerShape
from ddtree_kernels.models.attention import View, attend, on_kernels

Pass = tuple[torch.Tensor, torch.Tensor | None]
"""Hidden [n, E] after the last norm, and the outputs of the wanted layers side by side [n, wanted * E]."""


@dataclass(frozen=True, eq=False)
class Older:
    """Rows that the cache still lacks, from the target's features: mixed [m, E] (not yet normed) by `norm`, to rows
    before [1] + i as far as they are committed."""

    mixed: torch.Tensor
    norm: torch.Tensor
    before: torch.Tensor


class Trunk:
    """Layers, the norm behind them, and how often each pair of a head's numbers turns."""

    def __init__(self, shape: LayerShape, layers: Sequence[stack.Layer], norm: torch.Tensor) -> None:
        self.shape, self.layers, self.norm = shape, layers, norm
        self.rates = rope.frequencies(shape.rope, shape.head_dim).to(norm.device)
        self._fine = self.rates.float()

    def run(
        self,
        embedding: torch.Tensor,
        tokens: torch.Tensor,
        cache: Cache,
        view: View,
        keep: Sequence[int] = (),
        *,
        first: torch.Tensor | None = None,
        older: Older | None = None,
    ) -> Pass:
        """Runs tokens [n] (below 0: padding) behind what the view shows; keep: layers whose outputs are wanted.

        first: [1], the token of row 0 in place of tokens[0]. older: only where `fuses` says so.
        """
        if self.fuses:
            return self._fused(embedding, tokens, cache, view, keep, first, older)
        assert older is None
        tokens = tokens if first is None else torch.cat([first, tokens[1:]])
        return self._plain(embedding, tokens, cache, view, keep)

    @property
    def fuses(self) -> bool:
        """Whether the kernels run it: by device, type and head size."""
        return on_kernels(self.norm, self.shape.head_dim)

    def context(self, rows: torch.Tensor, cache: Cache, start: int | torch.Tensor) -> None:
        """Puts keys and values of hidden rows [m, E] that ask nothing at rows and positions start, start + 1 ..."""
        shape, count = self.shape, self.shape.num_attention_heads * self.shape.head_dim
        if self.fuses:
            cache.check(start, rows.shape[0])
            first = as_tensor(start, rows.device)
            for i, layer in enumerate(self.layers):
                bias = None if layer.qkv_bias is None else layer.qkv_bias[count:]
                fused.heads(layer, shape, F.linear(rows, layer.qkv[count:], bias), self._fine, cache, i, first)
            return
        positions = start + torch.arange(rows.shape[0], device=rows.device)
        cosines, sines = rope.turns(positions, self.rates, shape.rope, rows.dtype)
        for i, layer in enumerate(self.layers):
            cache.write(i, start, *stack.key_value(layer, shape, rows, cosines, sines))

    def _plain(
        self, embedding: torch.Tensor, tokens: torch.Tensor, cache: Cache, view: View, keep: Sequence[int]
    ) -> Pass:
        shape = self.shape
        cosines, sines = rope.turns(view.at, self.rates, shape.rope, self.norm.dtype)
        x = F.embedding(tokens.clamp(min=0), embedding)
        taken: dict[int, torch.Tensor] = {}
        for i, layer in enumerate(self.layers):
            normed = stack.rms_norm(x, layer.input_norm, shape.rms_norm_eps)
            query, key, value = stack.project(layer, shape, normed, cosines, sines)
            cache.write(i, view.start, key, value)
            x = stack.finish(layer, shape, x, attend(query, cache, i, view, shape.windows[i]))
            if i in keep:
                taken[i] = x
        hidden = stack.rms_norm(x, self.norm, shape.rms_norm_eps)
        return hidden, torch.cat([taken[i] for i in keep], dim=-1) if keep else None

    def _fused(
        self,
        embedding: torch.Tensor,
        tokens: torch.Tensor,
        cache: Cache,
        view: View,
        keep: Sequence[int],
        first: torch.Tensor | None,
        older: Older | None,
    ) -> Pass:
        shape, eps, size = self.shape, self.shape.rms_norm_eps, self.shape.hidden_size
        context = 0 if older is None else older.mixed.shape[0]
        rows, start = tokens.shape[0], view.lengths
        cache.check(view.start, rows)
        inputs = torch.empty(context + rows, size, dtype=self.norm.dtype, device=self.norm.device)
        features = torch.empty(rows, len(keep) * size, dtype=self.norm.dtype, device=self.norm.device)
        normed = inputs[context:]
        x = fused.embed(
            tokens, embedding, self.layers[0].input_norm, eps, inputs, first=first,
            older=None if older is None else (older.mixed, older.norm),
        )  # fmt: skip
        hidden, middle, between = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
        for i, layer in enumerate(self.layers):
            query = fused.heads(
                layer, shape, F.linear(inputs, layer.qkv, layer.qkv_bias), self._fine, cache, i, start,
                depths=view.below, context=context, before=None if older is None else older.before,
            )  # fmt: skip
            attended = attend(query, cache, i, view, shape.windows[i])
            delta = F.linear(attended.flatten(-2), layer.out, layer.out_bias)
            fused.add_norm(x, delta, layer.post_norm, eps, middle, between)
            delta = F.linear(fused.gate(F.linear(between, layer.gate_up)), layer.down)
            last = i + 1 == len(self.layers)
            # a wanted output is put where it will be read; the next layer reads it there too
            x = features[:, keep.index(i) * size :][:, :size] if i in keep else torch.empty_like(hidden)
            weight = self.norm if last else self.layers[i + 1].input_norm
            fused.add_norm(middle, delta, weight, eps, x, hidden if last else normed)
        for column, i in enumerate(keep):
            if keep.index(i) != column:
                features[:, column * size :][:, :size] = features[:, keep.index(i) * size :][:, :size]
        return hidden, features if keep else None


def as_tensor(start: int | torch.Tensor, device: torch.device) -> torch.Tensor:
    """A row number as [1] on the device."""
    return torch.full((1,), start, device=device) if isinstance(start, int) else start.reshape(1)
