"""What Triton and DDTree's kernels must do here: small shapes, compared with the references. Needs a CUDA GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from ddtree_kernels import kv_commit, kv_table, tree_accept, tree_attention, tree_build
from ddtree_kernels.gpu_check.plain import Wrong
from ddtree_kernels.ops.kv_commit import reference as commit_reference
from ddtree_kernels.ops.tree_accept import reference as accept_reference
from ddtree_kernels.ops.tree_attention import reference as attention_reference
from ddtree_kernels.ops.tree_build import ranking
from ddtree_kernels.ops.tree_build import reference as build_reference
from ddtree_kernels.ops.tree_build.tree import DraftTree

BUDGET, DEPTH, VOCABULARY, CONTEXT = 64, 15, 32000, 300
TOLERANCE = 8e-3  # of the norm, bfloat16 operands


def use_triton() -> str:
    """A kernel of one line compiles and runs."""
    import triton

    from ddtree_kernels.gpu_check.kernel import add_one

    x = torch.arange(1000, device="cuda", dtype=torch.float32)
    y = torch.full_like(x, float("nan"))
    add_one[(triton.cdiv(1000, 256),)](x, y, 1000, BLOCK=256)
    if not torch.equal(y, x + 1):
        raise Wrong("its first kernel gives a wrong result")
    return f"triton {triton.__version__} compiles and runs"


def _logits(seed: int) -> torch.Tensor:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(1, DEPTH, VOCABULARY, device="cuda", generator=generator) * 4).bfloat16()


def _root() -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int64, device="cuda")


def _check_tree(tree: DraftTree, logits: torch.Tensor) -> None:
    ranked = ranking.rank_tokens(logits, BUDGET, BUDGET, prune=False)
    wanted = build_reference.select(ranked.log_probs, ranked.tokens, _root(), BUDGET, False)
    for field in dataclasses.fields(tree):
        if not torch.equal(getattr(tree, field.name), getattr(wanted, field.name)):
            raise Wrong(f"{field.name} differ from the reference's")


def build() -> str:
    """tree_build against its reference."""
    logits = _logits(1)
    _, tokens = build_reference.top_log_probs(logits, BUDGET)
    if not torch.equal(ranking.rank_tokens(logits, BUDGET, BUDGET, prune=False).tokens.long(), tokens):
        raise Wrong("top tokens differ from the reference's")
    _check_tree(tree_build(logits, _root(), budget=BUDGET), logits)
    return f"budget {BUDGET} over {DEPTH} x {VOCABULARY} logits, the reference's tree"


def attention() -> str:
    """tree_attention against float64."""
    tree = tree_build(_logits(2), _root(), budget=BUDGET)
    q = torch.randn(1, BUDGET + 1, 8, 128, device="cuda").bfloat16()
    k, v = (torch.randn(1, CONTEXT + BUDGET + 1, 2, 128, device="cuda").bfloat16() for _ in range(2))
    length = torch.tensor([CONTEXT], device="cuda")
    out = tree_attention(q, k, v, tree.visibility, length)
    assert isinstance(out, torch.Tensor)
    wanted, _ = attention_reference.tree_attention(
        q.float(), k.float(), v.float(), tree.visibility, length, compute=torch.float64
    )
    error = float((out - wanted).norm() / wanted.norm())
    if not error < TOLERANCE:
        raise Wrong(f"relative error {error:.1e}, more than {TOLERANCE:.0e}")
    return f"{BUDGET + 1} nodes over {CONTEXT} keys, relative error {error:.0e}"


def accept() -> str:
    """tree_accept against its reference."""
    tree = tree_build(_logits(3), _root(), budget=BUDGET)
    target = tree.tokens.roll(-1, 1).contiguous()
    got = tree_accept(tree, target, max_depth=DEPTH)
    wanted = accept_reference.tree_walk(tree.tokens, tree.first_child, tree.next_sibling, target, DEPTH)
    if not all(map(torch.equal, (got.nodes, got.counts, got.bonus), wanted)):
        raise Wrong("the walk differs from the reference's")
    return f"the reference's walk, {int(got.counts[0])} accepted"


def commit() -> str:
    """kv_commit against its reference."""
    tree = tree_build(_logits(4), _root(), budget=BUDGET)
    accepted = tree_accept(tree, tree.tokens.roll(-1, 1).contiguous(), max_depth=DEPTH)
    caches = [torch.randn(1, CONTEXT + BUDGET + 1, 2, 128, device="cuda").bfloat16() for _ in range(8)]
    context = torch.tensor([CONTEXT], device="cuda")
    wanted = [cache.clone() for cache in caches]
    commit_reference.commit(wanted, accepted.nodes, accepted.counts, context)
    kv_commit(kv_table(caches), accepted, context)
    if not all(map(torch.equal, caches, wanted)):
        raise Wrong("rows differ from the reference's")
    return f"{len(caches)} caches, rows as the reference's"


def kernels_in_a_graph() -> str:
    """Build, attend, accept in one graph, replayed on changed logits."""
    logits = torch.empty(1, DEPTH, VOCABULARY, device="cuda", dtype=torch.bfloat16)
    q = torch.randn(1, BUDGET + 1, 8, 128, device="cuda").bfloat16()
    k, v = (torch.randn(1, CONTEXT + BUDGET + 1, 2, 128, device="cuda").bfloat16() for _ in range(2))
    length, root = torch.tensor([CONTEXT], device="cuda"), _root()

    def once() -> DraftTree:
        tree = tree_build(logits, root, budget=BUDGET)
        tree_attention(q, k, v, tree.visibility, length, max_length=CONTEXT)
        tree_accept(tree, tree.tokens.roll(-1, 1).contiguous(), max_depth=DEPTH)
        return tree

    logits.copy_(_logits(5))
    once()  # compiled now
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        tree = once()
    for seed in (6, 7):
        logits.copy_(_logits(seed))
        captured.replay()
        _check_tree(tree, logits)
    return "a round in one graph, 2 replays follow their inputs"


RUN: dict[str, Callable[[], str]] = {
    "triton": use_triton,
    "tree_build": build,
    "tree_attention": attention,
    "tree_accept": accept,
    "kv_commit": commit,
    "kernels in a graph": kernels_in_a_graph,
}
