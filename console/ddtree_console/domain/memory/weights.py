"""Weights from a config alone, and what PyTorch's allocator takes for them beyond their bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ddtree_console.domain.memory.shape import Shape

MiB = 1024**2
SMALL, LARGE, SEGMENT, ROUND = MiB, 10 * MiB, 20 * MiB, 2 * MiB
"""PyTorch's caching allocator: tensors up to SMALL share 2 MiB blocks, up to LARGE share SEGMENTs, others are rounded
up (c10/cuda/CUDACachingAllocator.cpp)."""


def layer(shape: Shape, index: int) -> Iterator[int]:
    """Elements of one layer's tensors as SGLang fuses them; norms are left out, they are thousandths."""
    h = shape.hidden
    # linear layers first: only their number matters
    if index < shape.linear:
        keys, values = shape.key_heads * shape.key_dim, shape.value_heads * shape.linear_value_dim
        yield from ((2 * keys + 2 * values) * h, 2 * shape.value_heads * h, values * h)
        yield (2 * keys + values) * shape.kernel
    elif shape.latent:
        # down and up projections; the rank of the queries is not kept, so this is a dense query
        yield from (shape.latent * h, shape.heads * (shape.head_dim + shape.value_dim) * (h + shape.latent))
    else:
        gate = 2 if shape.linear else 1  # Qwen3-Next's attention has an output gate beside its queries
        yield h * (gate * shape.heads * shape.head_dim + shape.kv_heads * (shape.head_dim + shape.value_dim))
        yield shape.heads * shape.value_dim * h
    if index >= shape.layers - shape.sparse_layers:
        yield from (shape.experts * 2 * shape.expert_inner * h, shape.experts * shape.expert_inner * h)
        yield shape.experts * h
        if shape.shared_inner:
            yield from (2 * shape.shared_inner * h, shape.shared_inner * h)
    else:
        yield from (2 * shape.dense_inner * h, shape.dense_inner * h)


def tensors(shape: Shape, draft: bool = False) -> Iterator[int]:
    """Elements of the tensors that are loaded. A draft uses the target's embeddings and has a projection of its own."""
    if draft:
        yield max(1, shape.features) * shape.hidden * shape.hidden
    else:
        yield shape.vocab * shape.hidden
        if not shape.tied:
            yield shape.vocab * shape.hidden
    for index in range(shape.layers):
        yield from layer(shape, index)


def counted(shape: Shape, draft: bool = False) -> int:
    """Bytes of all weights, from the config alone."""
    return sum(tensors(shape, draft)) * shape.width


def embeddings(shape: Shape) -> int:
    """Bytes of embeddings and head, which online quantization leaves as they are."""
    return shape.vocab * shape.hidden * shape.width * (1 if shape.tied else 2)


def overhead(shape: Shape, tp: int, draft: bool = False) -> int:
    """Bytes beyond the weights' own on one GPU: rounding of allocations, and the rope table (float32)."""
    taken = own = 0
    left: list[int] = []
    for elements in tensors(shape, draft):
        size = elements * shape.width // tp
        own += size
        if size > LARGE:
            taken += -(-size // ROUND) * ROUND
        elif size > SMALL:
            at = next((i for i, room in enumerate(left) if room >= size), None)
            if at is None:
                taken += SEGMENT
                left.append(SEGMENT - size)
            else:
                left[at] -= size
        else:
            taken += size
    # a draft finds the table and half-empty segments of the target
    table = 0 if draft else shape.context * shape.head_dim * 4
    return (0 if draft else taken - own) + table
