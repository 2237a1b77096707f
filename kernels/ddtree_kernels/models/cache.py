"""The static key and value cache of one decoder stack: one allocation, never moved, so that graphs may hold it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch

from ddtree_kernels.models.api import LayerShape
from ddtree_kernels.ops.kv_commit import kv_commit, kv_table

if TYPE_CHECKING:
    from ddtree_kernels.ops.kv_commit import KvTable
    from ddtree_kernels.ops.tree_accept import Accepted


class Cache:
    """Rows of keys and values for every layer of a stack, zeroed; see api.Cache."""

    def __init__(
        self, shape: LayerShape, rows: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        """Allocates 2 * layers * rows * Hkv * D numbers; ValueError for less than one row."""
        if rows < 1:
            raise ValueError(f"a cache of {rows} rows holds nothing")
        self.rows = rows
        size = (2, shape.num_hidden_layers, 1, rows, shape.num_key_value_heads, shape.head_dim)
        self.storage = torch.zeros(size, device=device, dtype=dtype)
        self.keys: tuple[torch.Tensor, ...] = self.storage[0].unbind(0)
        self.values: tuple[torch.Tensor, ...] = self.storage[1].unbind(0)

    @cached_property
    def table(self) -> KvTable:
        """Every layer's keys, then every layer's values, for kv_commit; made on first use, before any capture."""
        return kv_table([*self.keys, *self.values])

    def check(self, start: int | torch.Tensor, count: int) -> None:
        """ValueError where an int start has no room for so many rows; of a tensor nothing is known without waiting."""
        if isinstance(start, int) and (start < 0 or start + count > self.rows):
            raise ValueError(f"rows {start} to {start + count - 1} are not in a cache of {self.rows} rows")

    def write(self, layer: int, start: int | torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Puts keys and values [n, Hkv, D] into rows start .. start+n-1; ValueError where an int start has no room."""
        count = keys.shape[0]
        self.check(start, count)
        if isinstance(start, int):
            self.keys[layer][0, start : start + count] = keys
            self.values[layer][0, start : start + count] = values
            return
        rows = start + torch.arange(count, device=keys.device)
        self.keys[layer][0].index_copy_(0, rows, keys)
        self.values[layer][0].index_copy_(0, rows, values)

    def commit(self, accepted: Accepted, lengths: torch.Tensor) -> None:
        """See api.Cache.commit."""
        kv_commit(self.table, accepted, lengths)
