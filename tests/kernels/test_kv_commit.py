"""kv_commit: by hand, and the kernel against the reference on every layout and type."""

from __future__ import annotations

import pytest
import torch

from ddtree_kernels import Accepted, feature_commit, kv_commit, kv_table
from ddtree_kernels.ops.kv_commit import launch, reference
from tests.kernels.helpers import DEVICE

NODES = torch.tensor([[0, 1, 4, 9], [0, 3, -1, -1], [0, 2, 3, -1]], dtype=torch.int32)
COUNTS = torch.tensor([4, 2, 3], dtype=torch.int32)
CONTEXT = torch.tensor([5, 0, 17])


def accepted(nodes: torch.Tensor = NODES, counts: torch.Tensor = COUNTS) -> Accepted:
    """As tree_accept gives it."""
    return Accepted(nodes, counts, torch.zeros(len(counts), dtype=torch.int64))


def test_rows_by_hand() -> None:
    cache = torch.arange(10.0).view(1, 10, 1, 1).repeat(1, 1, 1, 64)
    path = accepted(torch.tensor([[0, 2, 3, 6]], dtype=torch.int32), torch.tensor([4], dtype=torch.int32))
    kv_commit(kv_table([cache]), path, torch.tensor([3]))
    assert cache[0, :, 0, 0].tolist() == [0, 1, 2, 3, 5, 6, 9, 7, 8, 9]
    features = torch.arange(8.0).view(1, 8, 1).clone()
    feature_commit(features, path)
    assert features[0, :, 0].tolist() == [0, 2, 3, 6, 4, 5, 6, 7]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.uint8, torch.float32])
@pytest.mark.parametrize("page", [0, 1, 4])
@pytest.mark.parametrize("heads_first", [False, True])
def test_the_kernel_moves_what_the_reference_moves(dtype: torch.dtype, page: int, heads_first: bool) -> None:
    torch.manual_seed(page)
    pages = -(-30 // page) if page else 0
    shape = (3 * pages + 2, page, 2, 64) if page else (3, 30, 2, 64)
    table = torch.randperm(3 * pages + 2)[: 3 * pages].view(3, pages).int() if page else None
    made = [(torch.randn(shape) * 50).to(dtype) for _ in range(4)]
    if heads_first:
        made = [cache.transpose(1, 2).contiguous().transpose(1, 2) for cache in made]
    want = [cache.clone() for cache in made]
    reference.commit(want, NODES, COUNTS, CONTEXT, table)
    arguments = [t if t is None else t.to(DEVICE) for t in (NODES, COUNTS, CONTEXT, table)]
    stacked = torch.stack(made).to(DEVICE)
    launch.commit(stacked, *arguments)  # type: ignore[arg-type]
    have = [cache.to(DEVICE) for cache in made]
    launch.commit(kv_table(have), *arguments)  # type: ignore[arg-type]
    for one, other, right in zip(have, stacked, want, strict=True):
        assert torch.equal(one.cpu(), right)
        assert torch.equal(other.cpu(), right)


@pytest.mark.parametrize("width", [1, 37, 128])
def test_features_of_any_width(width: int) -> None:
    features = torch.randn(3, 12, width)
    want = features.clone()
    feature_commit(want, accepted())
    have = features.to(DEVICE)
    launch.commit(have[None, :, :, None, :], NODES.to(DEVICE), COUNTS.to(DEVICE), None, None)
    assert torch.equal(have.cpu(), want)


def test_pools_beyond_31_bits() -> None:
    # 2^25 + 2 pages of one row of 64: the last rows' offsets do not fit int32; zeros are not touched until written
    pages = (1 << 25) + 2
    pool = torch.zeros(pages, 1, 1, 64, dtype=torch.uint8, device=DEVICE)
    pool[pages - 1], pool[pages - 2] = 7, 9
    table = torch.tensor([[0, pages - 2, pages - 1]], dtype=torch.int32, device=DEVICE)
    nodes = torch.tensor([[0, 1]], dtype=torch.int32, device=DEVICE)
    counts = torch.tensor([2], dtype=torch.int32, device=DEVICE)
    launch.commit(pool[None], nodes * 2, counts, torch.tensor([0], device=DEVICE), table)
    assert int(pool[pages - 2, 0, 0, 5]) == 7
    assert int(pool[pages - 1, 0, 0, 5]) == 7
    assert int(pool[0].sum()) == 0


def test_wrong_arguments_are_named() -> None:
    cache = torch.zeros(3, 30, 2, 64)
    with pytest.raises(ValueError, match="at least one cache"):
        kv_table([])
    with pytest.raises(ValueError, match="cache 1 differs"):
        kv_table([cache, cache[:, :20]])
    with pytest.raises(ValueError, match="5 dimensions"):
        kv_commit(cache, accepted(), CONTEXT)
    with pytest.raises(ValueError, match="caches hold 2 requests"):
        kv_commit(kv_table([cache[:2]]), accepted(), CONTEXT)
    with pytest.raises(TypeError, match="context_lengths is float32"):
        kv_commit(kv_table([cache]), accepted(), CONTEXT.float())
    with pytest.raises(ValueError, match="features"):
        feature_commit(cache, accepted())
