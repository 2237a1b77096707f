"""Trees of a batch as one copy to the device, and the flat mask that SGLang's Triton kernel reads. Needs torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ddtree_kernels.sglang_plugin.tree import Tree


@dataclass(frozen=True, eq=False)
class Packed:
    """On the device, N wide: tokens, depths, parents [batch, N] int64; visible [batch, N, N] bool (row sees column)."""

    tokens: torch.Tensor
    depths: torch.Tensor
    parents: torch.Tensor
    visible: torch.Tensor


def upload(trees: Sequence[Tree], device: torch.device | str) -> Packed:
    """All trees in one copy. They have the same width."""
    batch, width = len(trees), trees[0].width
    row = (width + 7) // 8
    data = bytearray()
    for name in ("tokens", "depths", "parents"):
        for tree in trees:
            values = getattr(tree, name)
            data += b"".join(value.to_bytes(8, "little", signed=True) for value in values)
    for tree in trees:
        data += b"".join(bits.to_bytes(row, "little") for bits in tree.bits)
    flat = torch.frombuffer(data, dtype=torch.uint8).to(device)
    numbers = batch * width
    tokens, depths, parents = flat[: 24 * numbers].view(torch.int64).view(3, batch, width)
    packed = flat[24 * numbers :].view(batch, width, row, 1)
    shifts = torch.arange(8, device=flat.device, dtype=torch.uint8)
    visible = ((packed >> shifts) & 1).view(batch, width, row * 8)[:, :, :width].bool()
    return Packed(tokens, depths, parents, visible)


def causal(batch: int, width: int, device: torch.device | str) -> torch.Tensor:
    """[batch, width, width] bool of a chain: what a backend that ignores the mask does."""
    return torch.ones(width, width, dtype=torch.bool, device=device).tril().expand(batch, width, width)


def mask_size(total_prefix: int, batch: int, width: int) -> int:
    """Entries of the flat mask of requests whose prefixes have this many tokens in all."""
    return width * (total_prefix + batch * width)


def flat_mask(visible: torch.Tensor, prefix: torch.Tensor, total_prefix: int) -> torch.Tensor:
    """The mask of a verify pass: bool, request after request, row-major [N, prefix_i + N].

    visible: [batch, N, N] bool. prefix: [batch] integers on the same device; total_prefix: their sum, from the host.
    Every node sees the whole prefix; the last N columns are `visible`. No host synchronisation.
    """
    batch, width, _ = visible.shape
    mask = torch.ones(mask_size(total_prefix, batch, width), dtype=torch.bool, device=visible.device)
    stride = prefix.to(torch.int64) + width
    start = (stride.cumsum(0) - stride) * width
    nodes = torch.arange(width, device=visible.device, dtype=torch.int64)
    row = start[:, None] + nodes[None, :] * stride[:, None] + prefix.to(torch.int64)[:, None]
    mask[(row[:, :, None] + nodes).reshape(-1)] = visible.reshape(-1)
    return mask
