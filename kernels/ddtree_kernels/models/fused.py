"""A layer's small steps in one launch each, for a GPU; what they compute is what stack.py says in plain torch.

A small model's round is all launches, so each one saved is time: a layer is four matrix products, two norms, the heads'
step, the attention and the gate. Arithmetic is float32 inside a step and rounds at its end.
"""

from __future__ import annotations

import torch

from ddtree_kernels.models.api import Cache, LayerShape
from ddtree_kernels.models.stack import Layer
from ddtree_kernels.ops.checks import next_power_of_two


def _warps(block: int) -> int:
    return min(8, max(1, block // 256))


def embed(
    tokens: torch.Tensor,
    table: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    normed: torch.Tensor,
    *,
    first: torch.Tensor | None = None,
    older: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> torch.Tensor:
    """Embeddings [n, E] of tokens [n] (below 0: of token 0) from table [V, E]; their norm goes to normed [m + n, E].

    first: [1], the token of row 0 in place of tokens[0]. older: rows [m, E], whose norm by a weight of their own goes
    to normed ahead of the others; None = m is 0.
    """
    from ddtree_kernels.models import triton as kernels

    size, rows = table.shape[1], tokens.shape[0]
    out = torch.empty(rows, size, dtype=table.dtype, device=table.device)
    block = next_power_of_two(size)
    mixed, own = older if older is not None else (out, weight)
    context = 0 if older is None else mixed.shape[0]
    kernels.embed_kernel[(context + rows,)](
        tokens, tokens if first is None else first, table, weight, mixed, own, out, normed, context, size, eps,
        BLOCK=block, FIRST=first is not None, num_warps=_warps(block),
    )  # fmt: skip
    return out


def add_norm(
    x: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, eps: float, total: torch.Tensor, normed: torch.Tensor
) -> None:
    """x + delta to total, and the norm of that to normed; all [n, E], rows of x and total may lie apart."""
    from ddtree_kernels.models import triton as kernels

    size = x.shape[1]
    block = next_power_of_two(size)
    kernels.norm_kernel[(x.shape[0],)](
        x, delta, weight, total, normed, x.stride(0), total.stride(0), size, eps,
        BLOCK=block, num_warps=_warps(block),
    )  # fmt: skip


def heads(
    layer: Layer,
    shape: LayerShape,
    packed: torch.Tensor,
    rates: torch.Tensor,
    cache: Cache,
    index: int,
    start: torch.Tensor,
    *,
    depths: torch.Tensor | None = None,
    context: int = 0,
    before: torch.Tensor | None = None,
) -> torch.Tensor:
    """Query [n, H, D] of packed rows [context + n, (H + 2 Hkv) D]; keys and values go to this layer's cache.

    Args:
        packed: of layer.qkv, or of its keys and values alone [n, 2 Hkv D]: then no query comes back.
        rates: [D / 2] float32, radians a position.
        start: [1], the cache's row of the first own row. depths: [n], positions behind start; else rows and
            positions are the same.
        context, before: that many rows ahead of the own ones are older: at rows and positions before [1] + i, as far as
            these are below start.
    """
    from ddtree_kernels.models import triton as kernels

    count, kv, size = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
    norms, rows = layer.qk_norm, packed.shape[0]
    if packed.shape[1] == 2 * kv * size:
        norms, count = norms[count:], 0
    query = torch.empty(rows - context, count, size, dtype=packed.dtype, device=packed.device)
    keys, values = cache.keys[index], cache.values[index]
    kernels.heads_kernel[(rows, count + 2 * kv)](
        packed, norms, rates, start if depths is None else depths, start, start if before is None else before,
        keys, values, query, keys.stride(1), context, shape.rope.attention_factor, shape.rms_norm_eps,
        HEADS=count, KV_HEADS=kv, SIZE=size, CHAIN=depths is None, num_warps=1,
    )  # fmt: skip
    return query


def gate(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up [n, M] of gate and up side by side [n, 2 M]."""
    from ddtree_kernels.models import triton as kernels

    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(rows, size, dtype=gate_up.dtype, device=gate_up.device)
    block = min(1024, next_power_of_two(size))
    kernels.gate_kernel[(rows, -(-size // block))](gate_up, out, size, BLOCK=block, num_warps=_warps(block))
    return out
