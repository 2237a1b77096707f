"""The caches of all layers as one argument: their addresses lie on the device, so that one launch reaches them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ddtree_kernels.ops.checks import capturing, need


@dataclass(frozen=True, eq=False)
class KvTable:
    """Caches of one shape, layout and type, and their addresses; made by kv_table, once for all rounds.

    tensors    the caches, kept alive
    addresses  [len(tensors)] int64 on their device
    """

    tensors: tuple[torch.Tensor, ...]
    addresses: torch.Tensor


def kv_table(tensors: Sequence[torch.Tensor]) -> KvTable:
    """The table of these caches, for instance every layer's keys and then every layer's values.

    Copies their addresses to the device, so make it before a CUDA graph is captured, and anew when one is replaced.

    Args:
        tensors: each [N, S, Hkv, D] or each [pages, page size, Hkv, D], of one shape, type, device and set of strides,
            last dimension contiguous.
    Raises:
        ValueError: for none, for unequal ones, or during a capture.
    """
    need(len(tensors) > 0, "a table needs at least one cache")
    first = tensors[0]
    need(first.dim() == 4, f"a cache has 4 dimensions, not {first.dim()}")
    need(first.stride(3) == 1, "the last dimension of the caches is not contiguous")
    for i, tensor in enumerate(tensors):
        same = tensor.shape == first.shape and tensor.stride() == first.stride()
        need(same and tensor.dtype == first.dtype and tensor.device == first.device, f"cache {i} differs from cache 0")
    need(not capturing(), "make the table before the graph is captured")
    addresses = torch.tensor([tensor.data_ptr() for tensor in tensors], dtype=torch.int64, device=first.device)
    return KvTable(tuple(tensors), addresses)
