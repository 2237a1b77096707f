"""What only a GPU can show: whole rounds in one CUDA graph replayed on changed inputs, and no synchronisation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ddtree_kernels import kv_commit, kv_table, tree_accept, tree_attention, tree_build
from ddtree_kernels.ops.kv_commit import reference as commit_reference
from ddtree_kernels.ops.tree_accept import reference as accept_reference
from ddtree_kernels.ops.tree_attention import reference as attention_reference
from ddtree_kernels.ops.tree_build import ranking
from ddtree_kernels.ops.tree_build import reference as build_reference
from tests.kernels.helpers import ON_GPU, differences

pytestmark = pytest.mark.skipif(not ON_GPU, reason="no CUDA GPU: graphs and synchronisation are not to be seen")


class Round:
    """Static inputs and one round over them: build, attend, accept, commit."""

    def __init__(self) -> None:
        self.logits = torch.empty(2, 6, 3000, device="cuda", dtype=torch.bfloat16)
        self.root = torch.zeros(2, dtype=torch.int64, device="cuda")
        self.query = torch.empty(2, 41, 4, 64, device="cuda", dtype=torch.bfloat16)
        self.caches = [torch.empty(2, 400, 2, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
        self.table = kv_table(self.caches)
        self.context = torch.zeros(2, dtype=torch.int32, device="cuda")
        self.target = torch.zeros(2, 41, dtype=torch.int64, device="cuda")

    def change(self, seed: int) -> None:
        """New values everywhere."""
        torch.manual_seed(seed)
        self.logits.normal_(0, 4)
        for tensor in (self.query, *self.caches):
            tensor.normal_()
        self.root.random_(0, 3000)
        self.context.random_(1, 350)
        best = self.logits.float().argmax(-1)
        self.target.copy_(best[:, torch.randint(0, 6, (41,), device="cuda")])

    def run(self) -> tuple[Any, ...]:
        """One round."""
        tree = tree_build(self.logits, self.root, budget=40)
        out = tree_attention(
            self.query,
            self.caches[0],
            self.caches[1],
            tree.visibility,
            self.context,
            node_counts=tree.counts,
            max_length=400,
        )
        accepted = tree_accept(tree, self.target, max_depth=6)
        kv_commit(self.table, accepted, self.context)
        return tree, out, accepted

    def check(self, results: tuple[Any, ...], before: list[torch.Tensor]) -> None:
        """Each part against its reference."""
        tree, out, accepted = results
        full = ranking.rank_tokens(self.logits, 40, 40, prune=False)
        assert differences(tree, build_reference.select(full.log_probs, full.tokens, self.root, 40)) == []
        want, _ = attention_reference.tree_attention(
            self.query,
            before[0],
            before[1],
            tree.visibility,
            self.context,
            tree.counts,
            compute=torch.float64,
        )
        torch.testing.assert_close(out, want, atol=2e-2, rtol=2e-2)
        walk = accept_reference.tree_walk(tree.tokens, tree.first_child, tree.next_sibling, self.target, 6)
        assert torch.equal(accepted.nodes, walk[0])
        assert torch.equal(accepted.bonus, walk[2])
        commit_reference.commit(before, walk[0], walk[1], self.context)
        assert all(map(torch.equal, before, self.caches))


def test_a_captured_round_follows_its_inputs() -> None:
    one = Round()
    one.change(0)
    one.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = one.run()
    for seed in range(1, 5):
        one.change(seed)
        before = [cache.clone() for cache in one.caches]
        graph.replay()
        one.check(results, before)


def test_a_round_never_waits_for_the_gpu() -> None:
    one = Round()
    one.change(0)
    one.run()  # compiled now
    torch.cuda.set_sync_debug_mode("error")
    try:
        one.run()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_attention_over_pools_beyond_31_bits() -> None:
    pages = (1 << 24) + 8
    pool = torch.zeros(pages, 1, 2, 64, device="cuda", dtype=torch.bfloat16)
    pool[-8:] = torch.randn(8, 1, 2, 64, device="cuda")
    table = torch.arange(pages - 8, pages, dtype=torch.int32, device="cuda")[None]
    query = torch.randn(1, 3, 4, 64, device="cuda").bfloat16()
    words = torch.tensor([[[1], [3], [5]]], device="cuda")
    length = torch.tensor([5], device="cuda")
    out = tree_attention(query, pool, pool, words, length, block_table=table)
    want = tree_attention(query, pool[-8:], pool[-8:], words, length, block_table=table - (pages - 8))
    assert isinstance(out, torch.Tensor)
    assert isinstance(want, torch.Tensor)
    assert torch.equal(out, want)
    assert float(out.abs().max()) > 0
