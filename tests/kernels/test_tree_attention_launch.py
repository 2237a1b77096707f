"""What tree_attention's launches pass: arguments that each kernel takes, and block shapes as measured best."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ddtree_kernels.ops.tree_attention import launch, reference
from ddtree_kernels.ops.tree_attention import triton as kernels
from ddtree_kernels.ops.tree_attention.launch import Blocks
from tests.kernels.helpers import DEVICE

OPTIONS = ("num_warps", "num_stages", "maxnreg", "launch_pdl")  # of Triton's launch, no kernel's own


class Bound:
    """Stands for a kernel: a launch only binds its arguments to the kernel's own signature."""

    def __init__(self, kernel: Any) -> None:
        self.signature = inspect.signature(kernel.fn)
        self.launches: list[dict[str, Any]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self.launch

    def launch(self, *args: Any, **named: Any) -> None:
        own = {name: value for name, value in named.items() if name not in OPTIONS}
        self.launches.append(self.signature.bind(*args, **own).arguments)


def inputs(
    nodes: int, heads: int, kv_heads: int, size: int, rows: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Query, cache, visibility and lengths of one request, all zero and on the CPU."""
    query = torch.zeros(1, nodes, heads, size, dtype=torch.bfloat16)
    words = torch.zeros(1, nodes, -(-nodes // 64), dtype=torch.int64)
    return query, torch.zeros(1, rows, kv_heads, size, dtype=query.dtype), words, torch.zeros(1, dtype=torch.int32)


@pytest.mark.parametrize("with_log", [False, True])
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize(("hopper", "splits"), [(False, 1), (False, 3), (True, 1), (True, 3)])
@pytest.mark.parametrize("pdl", [False, True])
def test_every_launch_passes_what_the_kernel_takes(
    hopper: bool, splits: int, counted: bool, with_log: bool, pdl: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if hopper:
        module: Any = pytest.importorskip("ddtree_kernels.ops.tree_attention.hopper", reason="no Gluon for Hopper")
    else:
        module = kernels
    split, reduction = Bound(module.split_kernel), Bound(kernels.reduce_kernel)
    monkeypatch.setattr(module, "split_kernel", split)
    monkeypatch.setattr(kernels, "reduce_kernel", reduction)
    # 192 rows: three row tiles of the Hopper kernel, none of them shared
    query, cache, words, lengths = inputs(48, 4, 1, 128, 640)
    counts = torch.tensor([9]) if counted else None
    nothing = (None,) * 5
    launch.tree_attention(
        query, cache, cache, words, lengths, counts, *nothing, with_log, None, splits=splits, hopper=hopper, pdl=pdl,
        early=pdl,
    )  # fmt: skip
    assert [given["splits"] for given in split.launches] == [splits]
    for given in split.launches:
        assert (given["DIRECT"], given["COUNTED"], given["HEADS"], given["SIZE"]) == (splits == 1, counted, 4, 128)
        assert given["query"] is query
        assert given["visibility"] is words
        assert given["context_lengths"] is lengths
        assert given["capacity"] == 640
        assert given["nodes"] == 48
    assert [given["WITH_LOG"] for given in reduction.launches] == [with_log] * (splits > 1)


@pytest.mark.parametrize(
    ("rows", "size", "groups", "longest", "blocks"),
    [
        # 4 heads over 1 key head of 64, a cache of 512 rows: T 16 and 65
        (64, 64, 1, 512, Blocks(16, 64, 4, 2, 2, 8)),
        (260, 64, 1, 512, Blocks(16, 64, 4, 2, 2, 8)),
        (260, 64, 2, 512, None),  # more than one wave
        (260, 64, 1, 4096, None),
        # 32 heads over 8 key heads of 128: T 17, 16 and 65 at 2048, T 17 at 32768, and four requests
        (68, 128, 8, 2070, Blocks(64, 64, 4, 3, 1, 8)),
        (64, 128, 8, 2070, None),
        (260, 128, 8, 2118, None),
        (68, 128, 8, 32790, None),
        (68, 128, 32, 2070, None),
        (68, 128, 1, 2070, None),  # 8 splits would leave most of the card idle
    ],
)
def test_small_shapes_have_the_blocks_measured_best(
    rows: int, size: int, groups: int, longest: int, blocks: Blocks | None
) -> None:
    assert launch.small_blocks(rows, size, 2, groups, longest, 132) == blocks
    assert launch.small_blocks(rows, size, 4, groups, longest, 132) is None


@pytest.mark.parametrize(("nodes", "heads", "kv_heads", "size", "rows"), [(9, 4, 1, 64, 150), (17, 8, 2, 128, 330)])
@pytest.mark.usefixtures("poisoned")
def test_small_shapes_agree_with_float64(
    nodes: int, heads: int, kv_heads: int, size: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # so many multiprocessors that each of the choices above is taken
    processors = 132 if size == 64 else 32
    monkeypatch.setattr(launch, "multiprocessors", lambda index: processors)
    chosen = launch.small_blocks(nodes * heads // kv_heads, size, 2, kv_heads, rows, processors)
    assert chosen is not None
    torch.manual_seed(size)
    keys, values = (torch.randn(1, rows, kv_heads, size).to(DEVICE, torch.float16) for _ in range(2))
    query = torch.randn(1, nodes, heads, size).to(DEVICE, torch.float16)
    words = torch.tensor([(1 << node + 1) - 1 for node in range(nodes)], device=DEVICE)[None, :, None]
    length = torch.tensor([rows - nodes - 3], device=DEVICE)
    nothing = (None,) * 6
    out, _ = launch.tree_attention(query, keys, values, words, length, *nothing, False, None, hopper=False)
    want, _ = reference.tree_attention(
        query.double(), keys.double(), values.double(), words, length, compute=torch.float64
    )
    assert float((out.double() - want).norm() / want.norm()) < 2e-3
