"""The draft's KV of a round's tokens: stock's fused kernel gives the same with and without its own look-ups."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.sglang_plugin.simulated import Draft
from tests.sglang_plugin.stubs import Holder, stock_modules

HEADS, SIZE, HIDDEN, LAYERS, TOKENS = 2, 8, 24, 2, 5
POSITIONS = torch.tensor([7, 8, 9, 3, 4])


@pytest.fixture
def modules(stock: Path) -> Iterator[SimpleNamespace]:
    """Stock's fused kernel, here under the interpreter, and ours over it."""
    with stock_modules(stock, Draft):
        yield SimpleNamespace(
            fused=importlib.import_module("sglang.srt.speculative.triton_ops.fused_kv_materialize"),
            ours=importlib.import_module("ddtree_kernels.sglang_plugin.appending"),
        )


class Written:
    """A KV pool that remembers: layer -> (slots, keys, values)."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[torch.Tensor, ...]] = {}

    def set_kv_buffer(self, layer: Any, loc: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *scales: Any) -> None:
        """As MHATokenToKVPool's."""
        assert scales == (None, None)
        self.held[layer.number] = (loc.clone(), k.clone(), v.clone())


def worker(modules: SimpleNamespace, rows: int = 32) -> Any:
    """As the plug-in's worker, as far as it is asked, with a real helper of stock over random weights."""
    torch.manual_seed(3)
    rotary = Holder(cos_sin_cache=torch.randn(rows, SIZE), rotary_dim=SIZE, is_neox_style=True)
    kv = HEADS * SIZE
    layers = [
        Holder(self_attn=Holder(
            num_kv_heads=HEADS, head_dim=SIZE, rotary_emb=rotary, q_size=16, kv_size=kv,
            qkv_proj=Holder(weight=torch.randn(16 + 2 * kv, HIDDEN)),
            k_norm=Holder(weight=torch.rand(SIZE) + 0.5, variance_epsilon=1e-6),
            attn=Holder(k_scale=None, v_scale=None, number=number),
        ))
        for number in range(LAYERS)
    ]  # fmt: skip
    helper = modules.fused.FusedKVMaterializeHelper(layers, rotary, HEADS, SIZE, torch.device("cpu"))
    model = Holder(layers=layers, project_target_hidden=lambda features: features * 0.5)
    return Holder(draft_model=model, draft_model_runner=Holder(token_to_kv_pool=Written()),
                  _use_fused_kv_materialize=True, _fused_kv_helper=helper)  # fmt: skip


def test_it_writes_what_stock_writes(modules: SimpleNamespace) -> None:
    ours, features, loc = worker(modules), torch.randn(TOKENS, HIDDEN), torch.tensor([40, 41, 45, 12, 13])
    modules.ours.append(ours, features, POSITIONS, loc, 9)
    theirs = Written()

    def write(layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
        theirs.set_kv_buffer(ours.draft_model.layers[layer].self_attn.attn, loc, k, v, None, None)

    ours._fused_kv_helper.materialize(features * 0.5, POSITIONS, write)
    mine = ours.draft_model_runner.token_to_kv_pool.held
    assert set(mine) == set(theirs.held) == set(range(LAYERS))
    for number, wanted in theirs.held.items():
        assert all(torch.equal(a, b) for a, b in zip(mine[number], wanted, strict=True))


def test_a_rotary_table_grows_or_is_too_short(modules: SimpleNamespace) -> None:
    short, features, loc = worker(modules, 8), torch.randn(TOKENS, HIDDEN), torch.arange(TOKENS)
    with pytest.raises(RuntimeError, match="rotary table has 8 rows, position 9 needs more"):
        modules.ours.append(short, features, POSITIONS, loc, 9)
    asked: list[int] = []

    def grow(last: int) -> None:
        asked.append(last)
        short._fused_kv_helper.rotary_emb.cos_sin_cache = torch.randn(last + 1, SIZE)

    short._fused_kv_helper.rotary_emb._ensure_cos_sin_cache_length = grow
    modules.ours.append(short, features, POSITIONS, loc, 9)
    assert asked == [9] and set(short.draft_model_runner.token_to_kv_pool.held) == {0, 1}
