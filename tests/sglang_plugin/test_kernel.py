"""SGLang's own Triton extend kernel with our mask, under Triton's interpreter, against dense attention."""

from __future__ import annotations

import importlib
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ddtree_kernels.sglang_plugin import packed
from ddtree_kernels.sglang_plugin.tree import grow

HEADS, KV_HEADS, SIZE = 4, 2, 16
Extend = Callable[..., None]


@pytest.fixture(scope="module")
def extend(stock: Path) -> Iterator[Extend]:
    """`extend_attention_fwd` of the wheel. Its packages' own __init__ would load the whole server: they stay empty."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("a GPU is here: the stock kernel runs on it in the GPU plan")
    before = dict(sys.modules)
    base = stock / "sglang"
    for name in ("sglang", "sglang.srt", "sglang.srt.layers", "sglang.srt.layers.attention",
                 "sglang.srt.layers.attention.triton_ops"):  # fmt: skip
        made = types.ModuleType(name)
        made.__path__ = [str(base.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = made
    utils = types.ModuleType("sglang.srt.utils")
    utils.is_cuda = utils.is_hip = lambda: False  # type: ignore[attr-defined]
    sys.modules["sglang.srt.utils"] = utils
    try:
        yield importlib.import_module("sglang.srt.layers.attention.triton_ops.extend_attention").extend_attention_fwd
    finally:
        for name in set(sys.modules) - set(before):
            if name == "sglang" or name.startswith("sglang."):
                del sys.modules[name]


def run(extend: Extend, prefixes: list[int], width: int, mask: torch.Tensor, tensors: dict[str, Any]) -> torch.Tensor:
    """Rows [requests * width, heads, size] of a verify pass as TritonAttnBackend calls it."""
    count = len(prefixes)
    sizes = torch.tensor([width * (p + width) for p in prefixes])
    zero = torch.zeros(1, dtype=torch.int64)
    out = torch.empty_like(tensors["q"])
    extend(
        tensors["q"], tensors["k"], tensors["v"], out, tensors["k_pool"], tensors["v_pool"],
        torch.arange(0, (count + 1) * width, width, dtype=torch.int32),
        torch.cat((zero, torch.tensor(prefixes).cumsum(0))), tensors["indices"], mask, True,
        torch.cat((zero, sizes.cumsum(0))), width, 1.0, 1.0, SIZE**-0.5,
    )  # fmt: skip
    return out


def dense(prefixes: list[int], width: int, visible: torch.Tensor, tensors: dict[str, Any]) -> torch.Tensor:
    """The same in plain torch: every row over its prefix and the rows that it sees."""
    rows = []
    at = 0
    group = HEADS // KV_HEADS
    for i, prefix in enumerate(prefixes):
        slots = tensors["indices"][at : at + prefix]
        at += prefix
        span = slice(i * width, (i + 1) * width)
        keys = torch.cat((tensors["k_pool"][slots], tensors["k"][span])).repeat_interleave(group, 1)
        values = torch.cat((tensors["v_pool"][slots], tensors["v"][span])).repeat_interleave(group, 1)
        seen = torch.cat((torch.ones(width, prefix, dtype=torch.bool), visible[i]), 1)
        scores = torch.einsum("qhd,khd->hqk", tensors["q"][span], keys) * SIZE**-0.5
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        rows.append(torch.einsum("hqk,khd->qhd", weights, values))
    return torch.cat(rows)


@pytest.fixture
def case() -> tuple[list[int], int, packed.Packed, dict[str, Any]]:
    """Two requests with scattered prefixes and different trees of nine nodes."""
    torch.manual_seed(5)
    prefixes, budget = [5, 70], 8
    trees = []
    for seed in range(2):
        torch.manual_seed(seed)
        values, ids = torch.randn(3, 12).log_softmax(-1).topk(4)
        trees.append(grow(0, values.tolist(), ids.tolist(), budget))
    total, rows = sum(prefixes), 2 * (budget + 1)
    pool = 200
    tensors = {
        "q": torch.randn(rows, HEADS, SIZE), "k": torch.randn(rows, KV_HEADS, SIZE),
        "v": torch.randn(rows, KV_HEADS, SIZE), "k_pool": torch.randn(pool, KV_HEADS, SIZE),
        "v_pool": torch.randn(pool, KV_HEADS, SIZE), "indices": torch.randperm(pool)[:total],
    }  # fmt: skip
    return prefixes, budget + 1, packed.upload(trees, "cpu"), tensors


def test_a_tree_in_the_stock_kernel(extend: Extend, case: tuple[list[int], int, packed.Packed, dict[str, Any]]) -> None:
    prefixes, width, up, tensors = case
    wanted = dense(prefixes, width, up.visible, tensors)
    mask = packed.flat_mask(up.visible, torch.tensor(prefixes), sum(prefixes))
    got = run(extend, prefixes, width, mask, tensors)
    assert float((got - wanted).abs().max()) < 1e-5
    # the first rows are the chain's: what they give does not depend on the rest of the tree
    chain = dense(prefixes, width, packed.causal(2, width, "cpu"), tensors)
    for request in range(2):
        first = slice(request * width, request * width + 4)
        assert float((got[first] - chain[first]).abs().max()) < 1e-5


def test_without_the_mask_it_is_another_result(
    extend: Extend, case: tuple[list[int], int, packed.Packed, dict[str, Any]]
) -> None:
    """The negative control: a chain's mask must not give the tree's rows."""
    prefixes, width, up, tensors = case
    wanted = dense(prefixes, width, up.visible, tensors)
    chain = packed.flat_mask(packed.causal(2, width, "cpu"), torch.tensor(prefixes), sum(prefixes))
    assert float((run(extend, prefixes, width, chain, tensors) - wanted).abs().max()) > 0.05
