"""The test that each operation must pass, on fresh random inputs on this very GPU, before it is timed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from ddtree_kernels.bench.inputs import draft_logits, random_tree
from ddtree_kernels.ops.kv_commit import kv_commit, kv_table
from ddtree_kernels.ops.kv_commit import reference as commit_reference
from ddtree_kernels.ops.tree_accept import Accepted, tree_accept
from ddtree_kernels.ops.tree_accept import reference as accept_reference
from ddtree_kernels.ops.tree_attention import reference as attention_reference
from ddtree_kernels.ops.tree_attention import tree_attention
from ddtree_kernels.ops.tree_build import ranking, tree_build
from ddtree_kernels.ops.tree_build import reference as build_reference

TOLERANCE = 4e-3  # of the norm, bfloat16 operands


def build(seed: int) -> str | None:
    """What is wrong with tree_build, None if nothing."""
    shapes = [(1, 16, False, 151936), (2, 64, False, 151936), (1, 256, True, 151936), (1, 1024, False, 151936)]
    for batch, budget, spine, vocab in [*shapes, (1, 64, False, 512), (2, 256, True, 512)]:
        logits = draft_logits(batch, 15, vocab, seed + budget)
        root = torch.arange(batch, device="cuda")
        full = ranking.rank_tokens(logits, budget, budget, prune=False)
        log_probs, tokens = build_reference.top_log_probs(logits, budget)
        if not torch.equal(full.tokens.long(), tokens):
            return f"budget {budget}: top tokens differ from the reference's"
        if not torch.allclose(full.log_probs, log_probs, atol=1e-5, rtol=1e-5):
            return f"budget {budget}: log-probabilities differ from the reference's"
        tree = tree_build(logits, root, budget=budget, spine=spine)
        wanted = build_reference.select(full.log_probs, full.tokens, root, budget, spine)
        for field in dataclasses.fields(tree):
            if not torch.equal(getattr(tree, field.name), getattr(wanted, field.name)):
                return f"budget {budget}: {field.name} differ from the reference's"
    return None


def attention(seed: int) -> str | None:
    """What is wrong with tree_attention, None if nothing."""
    torch.manual_seed(seed)
    for nodes, context in ((17, 2048), (65, 3001), (257, 5000)):
        q = torch.randn(1, nodes, 32, 128, device="cuda").bfloat16()
        k, v = (torch.randn(1, context + nodes, 8, 128, device="cuda").bfloat16() for _ in range(2))
        _, _, words = random_tree(nodes, seed)
        length = torch.tensor([context], device="cuda")
        out = tree_attention(q, k, v, words[None].cuda(), length)
        assert isinstance(out, torch.Tensor)
        wanted, _ = attention_reference.tree_attention(
            q.float(), k.float(), v.float(), words[None].cuda(), length, compute=torch.float64
        )
        error = float((out - wanted).norm() / wanted.norm())
        if not error < TOLERANCE:
            return f"{nodes} nodes over {context}: relative error {error:.1e}"
    return None


def accept(seed: int) -> str | None:
    """What is wrong with tree_accept, None if nothing."""
    logits = draft_logits(4, 15, 5000, seed)
    tree = tree_build(logits, torch.zeros(4, dtype=torch.int64, device="cuda"), budget=64)
    generator = torch.Generator().manual_seed(seed)
    target = tree.tokens[:, torch.randint(1, 20, (65,), generator=generator).cuda()].contiguous()
    got = tree_accept(tree, target, max_depth=15)
    wanted = accept_reference.tree_walk(tree.tokens, tree.first_child, tree.next_sibling, target, 15)
    same = all(map(torch.equal, (got.nodes, got.counts, got.bonus), wanted))
    return None if same else "the walk differs from the reference's"


def commit(seed: int) -> str | None:
    """What is wrong with kv_commit, None if nothing."""
    torch.manual_seed(seed)
    caches = [torch.randn(4, 512, 8, 128, device="cuda").bfloat16() for _ in range(16)]
    accepted = accepted_paths(4, 65, 16, seed)
    context = torch.tensor([0, 17, 300, 447], device="cuda")
    wanted = [cache.clone() for cache in caches]
    commit_reference.commit(wanted, accepted.nodes, accepted.counts, context)
    kv_commit(kv_table(caches), accepted, context)
    return None if all(map(torch.equal, caches, wanted)) else "rows differ from the reference's"


def accepted_paths(batch: int, nodes: int, count: int, seed: int) -> Accepted:
    """Random rising node indices from the root down, as a walk gives them."""
    generator = torch.Generator().manual_seed(seed)
    paths = [
        [0, *sorted((1 + torch.randperm(nodes - 1, generator=generator)[: count - 1]).tolist())] for _ in range(batch)
    ]
    return Accepted(
        torch.tensor(paths, dtype=torch.int32, device="cuda"),
        torch.full((batch,), count, dtype=torch.int32, device="cuda"),
        torch.zeros(batch, dtype=torch.int64, device="cuda"),
    )


def whole_round(seed: int) -> str | None:
    """What is wrong with any part of a round, None if nothing."""
    return build(seed) or accept(seed) or commit(seed)


CHECKS: dict[str, Callable[[int], str | None]] = {
    "tree_build": build,
    "tree_attention": attention,
    "tree_accept": accept,
    "kv_commit": commit,
    "round": whole_round,
}
