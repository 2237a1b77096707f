"""What the split kernels share: the reduction, also of rows that several warpgroups share; how many splits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ddtree_kernels.ops.tree_attention import hopper_launch, launch
from ddtree_kernels.ops.tree_attention import triton as kernels
from ddtree_kernels.ops.tree_attention.parts import join, make_parts
from tests.kernels.helpers import DEVICE


@pytest.mark.usefixtures("poisoned")
def test_rows_before_the_shared_ones_have_every_nth_part() -> None:
    torch.manual_seed(0)
    heads, group, size, splits, shared, from_row = 4, 2, 64, 3, 2, 5
    query = torch.zeros(2, 4, heads, size, dtype=torch.float16, device=DEVICE)
    parts = make_parts(query, splits * shared, True, shared, from_row)
    out = parts.part_out.view(2, 4, heads, splits * shared, size)
    log = parts.part_log.view(2, 4, heads, splits * shared)
    want, want_log = torch.zeros(2, 4, heads, size), torch.zeros(2, 4, heads)
    for n in range(2):
        for node in range(4):
            for head in range(heads):
                # the others stay NaN: reading one would show
                step = 1 if node * group + head % group >= from_row else shared
                logs = torch.randn(splits * shared // step) * 3
                logs[0] = -torch.inf if node == 1 else logs[0]  # an empty part, whose output is not written
                values = torch.randn(len(logs), size).to(out.dtype)
                log[n, node, head, ::step] = logs.to(DEVICE)
                for i in range(len(logs)):
                    if logs[i] > -torch.inf:
                        out[n, node, head, i * step] = values[i].to(DEVICE)
                weight = torch.exp2(logs)
                want[n, node, head] = (values.float() * weight[:, None]).sum(0) / weight.sum()
                want_log[n, node, head] = weight.sum().log()
    join(parts, group, pdl=False)
    torch.testing.assert_close(parts.out.float().cpu(), want, atol=2e-3, rtol=2e-3)
    assert parts.log_sum is not None
    torch.testing.assert_close(parts.log_sum.cpu(), want_log, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("context", "nodes", "splits"),
    # best of those measured on a card with 132 multiprocessors
    [(32768, 65, 8), (131072, 65, 8), (2048, 257, 2), (32768, 257, 8), (131072, 257, 11)],
)
def test_the_hopper_kernel_is_split_as_measured_best(context: int, nodes: int, splits: int) -> None:
    row_tiles = -(-nodes * 4 // hopper_launch.ROWS)
    blocks = -(-row_tiles // hopper_launch.WARPGROUPS)
    tiles = -(-(context + nodes) // hopper_launch.KEYS) + 1
    assert hopper_launch.splits_for(8 * blocks, tiles, 132, row_tiles / blocks) == splits


@pytest.mark.parametrize(
    ("context", "nodes", "pays"),
    [
        (32768, 65, True),
        (8192, 65, True),
        (2048, 257, True),
        (32768, 33, True),
        (2048, 65, False),
        (2048, 17, False),
        (131072, 17, False),
    ],
)
def test_the_hopper_kernel_is_taken_where_it_was_faster(context: int, nodes: int, pays: bool) -> None:
    query = torch.empty(1, nodes, 32, 128, dtype=torch.bfloat16, device="meta")
    cache = torch.empty(1, context + nodes, 8, 128, dtype=torch.bfloat16, device="meta")
    assert hopper_launch.pays(query, cache, context + nodes) == pays


@pytest.mark.parametrize(
    ("programs", "rows", "slots", "splits"),
    # a key head of 5 blocks over one tile of cache and over 512 and 1024 rows; 8 key heads over 2048
    [(5, 64, 264, 1), (5, 512, 264, 9), (5, 1024, 264, 17), (8, 2048 + 64, 132, 12)],
)
def test_one_tile_is_not_split_and_many_fill_the_card(programs: int, rows: int, slots: int, splits: int) -> None:
    assert launch.splits_for(programs, rows // 64 + 1, slots) == splits


def test_every_row_tile_has_as_many_parts_as_the_reduction_reads() -> None:
    # as the Gluon kernel places its warpgroups
    for row_tiles in range(1, 20):
        blocks = -(-row_tiles // hopper_launch.WARPGROUPS)
        held = [min(place, row_tiles - 1) for place in range(hopper_launch.WARPGROUPS * blocks)]
        parts = [held.count(tile) for tile in range(row_tiles)]
        assert parts[:-1] == [1] * (row_tiles - 1)
        assert parts[-1] == hopper_launch.sharers(row_tiles, blocks)


@pytest.mark.parametrize(("rows", "early"), [(64, True), (launch.EARLY_ROWS + 1, False)])
def test_the_split_kernel_is_launched_early_at_small_lengths(
    rows: int, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[dict[str, object]] = []

    class Kernel:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            return lambda *_, **options: launched.append(options)

    monkeypatch.setattr(kernels, "split_kernel", Kernel())
    query = torch.zeros(1, 1, 1, 64, dtype=torch.bfloat16, device="meta")
    cache = torch.zeros(1, rows, 1, 64, dtype=torch.bfloat16, device="meta")
    words, lengths = torch.zeros(1, 1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    nothing = (None,) * 6
    launch.tree_attention(query, cache, cache, words, lengths, *nothing, False, None, splits=1, pdl=True)
    assert [options.get("launch_pdl", False) for options in launched] == [early]
    assert launched[0]["PDL"] is True  # which makes it wait before its first read


def test_the_hopper_kernel_serves_no_cpu_tensor() -> None:
    query, cache = torch.zeros(1, 3, 4, 64, dtype=torch.float16), torch.zeros(1, 9, 2, 64, dtype=torch.float16)
    assert not hopper_launch.serves(query, cache, cache, None, plain=True)
