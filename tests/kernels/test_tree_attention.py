"""tree_attention: the reference against causal attention, the kernels against the reference in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from ddtree_kernels import tree_attention
from ddtree_kernels.bench.inputs import random_tree
from ddtree_kernels.ops.tree_attention import launch, reference
from tests.kernels.helpers import DEVICE, ON_GPU

fp32, fp16, bf16 = torch.float32, torch.float16, torch.bfloat16
TOLERANCE = {fp32: 2e-6, fp16: 2e-3, bf16: 8e-3}


def caches(
    batch: int, rows: int, heads: int, size: int, page: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Keys, values and block table (pages in random order, some unused) for `rows` rows a request."""
    if page == 0:
        shape = (batch, rows, heads, size)
        return torch.randn(shape).to(DEVICE, dtype), torch.randn(shape).to(DEVICE, dtype), None
    pages = -(-rows // page)
    table = torch.randperm(batch * pages + 3)[: batch * pages].view(batch, pages).int().to(DEVICE)
    shape = (batch * pages + 3, page, heads, size)
    return torch.randn(shape).to(DEVICE, dtype), torch.randn(shape).to(DEVICE, dtype), table


@pytest.mark.parametrize("page", [0, 1, 16])
@pytest.mark.parametrize("run", ["reference", "kernels"])
def test_a_chain_is_causal_attention(run: str, page: int) -> None:
    torch.manual_seed(page)
    context, nodes, size = 21, 6, 64
    keys, values, table = caches(1, context + nodes, 2, size, page, fp32)
    query = torch.randn(1, nodes, 4, size, device=DEVICE)
    chain = torch.tensor([(1 << node + 1) - 1 for node in range(nodes)], device=DEVICE)[None, :, None]
    length = torch.tensor([context], device=DEVICE)
    call = reference.tree_attention if run == "reference" else None
    if call:
        out, _ = call(query, keys, values, chain, length, block_table=table)
    else:
        out, _ = launch.tree_attention(
            query, keys, values, chain, length, None, table, None, None, None, None, False, None, splits=2
        )
    k, v = (reference.gathered(cache, 0, context + nodes, table)[None].transpose(1, 2) for cache in (keys, values))
    causal = torch.ones(nodes, context + nodes, dtype=torch.bool, device=DEVICE).tril(context)
    want = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(1, 2).double(), k.double(), v.double(), attn_mask=causal, enable_gqa=True
    ).transpose(1, 2)
    torch.testing.assert_close(out.double(), want, atol=1e-5, rtol=1e-5)


CASES: list[tuple[Any, ...]] = [
    # nodes, heads, key heads, size, contexts, page, type, window, cap, counts, splits
    (5, 4, 2, 64, [37], 0, fp32, None, None, None, None),
    (17, 4, 1, 64, [70, 3], 16, fp32, None, None, None, 3),
    (9, 6, 2, 64, [40, 0], 1, fp32, None, None, [9, 4], 2),
    (66, 2, 1, 64, [64], 0, fp32, None, None, None, 2),
    (9, 4, 2, 64, [60], 0, fp32, 20, None, None, 2),
    (9, 4, 2, 64, [60], 16, fp32, 7, 3.0, None, 2),
    (1, 2, 1, 256, [1], 0, fp32, None, None, None, None),
    (18, 2, 2, 128, [40], 0, fp16, None, 20.0, None, 1),
]
GPU_CASES: list[tuple[Any, ...]] = [
    (17, 32, 8, 128, [2048], 0, bf16, None, None, None, None),
    (65, 32, 8, 128, [2048, 0, 777], 16, bf16, None, None, [65, 3, 40], None),
    (257, 8, 2, 128, [1000, 4097], 1, bf16, None, None, None, None),
    (1025, 8, 2, 128, [3000], 0, bf16, None, None, None, None),
    (33, 8, 1, 256, [3000], 0, bf16, None, None, None, None),
    (9, 14, 2, 64, [500, 1], 16, fp16, None, 30.0, None, None),
    (40, 8, 2, 64, [900], 0, bf16, 100, None, None, None),
]


@pytest.mark.parametrize("case", CASES + (GPU_CASES if ON_GPU else []), ids=str)
@pytest.mark.usefixtures("poisoned")
def test_kernels_agree_with_float64(
    case: tuple[Any, ...],
) -> None:
    nodes, heads, kv_heads, size, contexts, page, dtype, window, cap, counts, splits = case
    torch.manual_seed(nodes)
    batch = len(contexts)
    keys, values, table = caches(batch, max(contexts) + nodes + 3, kv_heads, size, page, dtype)
    query = torch.randn(batch, nodes, heads, size).to(DEVICE, dtype)
    trees = [random_tree(nodes, seed) for seed in range(batch)]
    depths, words = (torch.stack([tree[i] for tree in trees]).to(DEVICE) for i in (1, 2))
    lengths = torch.tensor(contexts, dtype=torch.int32, device=DEVICE)
    kept = None if counts is None else torch.tensor(counts, device=DEVICE)
    out, log = launch.tree_attention(
        query, keys, values, words, lengths, kept, table, depths, None, window, cap, True, None, splits=splits
    )
    want, want_log = reference.tree_attention(
        query.double(), keys.double(), values.double(), words, lengths, kept, table, depths, None, window, cap,
        compute=torch.float64,
    )  # fmt: skip
    assert out.dtype == dtype
    assert float((out.double() - want).norm() / want.norm()) < TOLERANCE[dtype]
    assert log is not None
    torch.testing.assert_close(log, want_log, atol=1e-4, rtol=1e-4)


def test_a_node_alone_equals_its_path_as_a_chain() -> None:
    torch.manual_seed(0)
    parents, depths, words = random_tree(12, 3)
    keys, values, _ = caches(1, 30 + 12, 2, 64, 0, fp32)
    query = torch.randn(1, 12, 4, 64, device=DEVICE)
    length = torch.tensor([30], device=DEVICE)
    out, _ = reference.tree_attention(query, keys, values, words[None].to(DEVICE), length)
    path, node = [], 11
    while node >= 0:
        path.append(node)
        node = int(parents[node])
    path.reverse()
    assert len(path) == int(depths[11]) + 1
    rows = [*range(30), *(30 + node for node in path)]
    chain = torch.tensor([(1 << step + 1) - 1 for step in range(len(path))], device=DEVICE)[None, :, None]
    alone, _ = reference.tree_attention(query[:, path], keys[:, rows], values[:, rows], chain, length)
    torch.testing.assert_close(out[:, 11], alone[:, -1])


def test_wrong_arguments_are_named() -> None:
    good: dict[str, Any] = {
        "query": torch.zeros(1, 3, 4, 64),
        "key_cache": torch.zeros(1, 9, 2, 64),
        "value_cache": torch.zeros(1, 9, 2, 64),
        "visibility": torch.ones(1, 3, 1, dtype=torch.int64),
        "context_lengths": torch.tensor([5]),
    }
    assert isinstance(tree_attention(**good), torch.Tensor)
    changes: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"query": torch.zeros(1, 3, 4, 65)}, ValueError, "head size 65"),
        ({"query": torch.zeros(1, 3, 3, 64)}, ValueError, "no multiple"),
        ({"key_cache": torch.zeros(2, 9, 2, 64)}, ValueError, "key_cache has shape"),
        ({"value_cache": torch.zeros(1, 9, 2, 64, dtype=fp16)}, TypeError, "value_cache is float16"),
        ({"visibility": torch.ones(1, 3, 1)}, TypeError, "visibility is float32"),
        ({"sliding_window": 4}, ValueError, "needs depths"),
        ({"soft_cap": -1.0}, ValueError, "soft_cap"),
        ({"scale": math.inf}, ValueError, "scale"),
    ]
    for change, error, message in changes:
        with pytest.raises(error, match=message):
            tree_attention(**(good | change))
