"""What the split kernels share: the reduction, also of rows that several warpgroups share; how many splits."""

from __future__ import annotations

import pytest
import torch

from ddtree_kernels.ops.tree_attention import hopper_launch
from ddtree_kernels.ops.tree_attention.parts import join, make_parts
from tests.kernels.helpers import DEVICE


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.usefixtures("poisoned")
def test_rows_before_the_shared_ones_have_every_nth_part(narrow: bool) -> None:
    torch.manual_seed(int(narrow))
    heads, group, size, splits, shared, from_row = 4, 2, 64, 3, 2, 5
    query = torch.zeros(2, 4, heads, size, dtype=torch.float16, device=DEVICE)
    parts = make_parts(query, splits * shared, True, shared, from_row, narrow)
    assert parts.part_out.dtype == (torch.float16 if narrow else torch.float32)
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
    ("nodes", "warpgroups", "programs", "splits"),
    # one wave of 132 multiprocessors: 8 key heads, 2, 1 and 2 programs each
    [(65, 3, 16, 8), (17, 2, 8, 16), (64, 2, 16, 8)],
)
def test_a_long_context_fills_one_wave(nodes: int, warpgroups: int, programs: int, splits: int) -> None:
    row_tiles = -(-nodes * 4 // hopper_launch.ROWS)
    blocks = -(-row_tiles // warpgroups)
    assert 8 * blocks == programs
    assert hopper_launch.splits_for(programs, 32768 // 64 + 1, 132, row_tiles / blocks) == splits


def test_the_hopper_kernel_serves_no_cpu_tensor() -> None:
    query, cache = torch.zeros(1, 3, 4, 64, dtype=torch.float16), torch.zeros(1, 9, 2, 64, dtype=torch.float16)
    assert not hopper_launch.serves(query, cache, None, plain=True)
