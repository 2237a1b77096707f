"""The measured shapes of each operation and what they have to reach."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from ddtree_kernels.bench import flex, peers
from ddtree_kernels.bench.inputs import draft_logits, random_tree
from ddtree_kernels.bench.rows import Row
from ddtree_kernels.bench.timing import events_us, graph_us, spread_us
from ddtree_kernels.bench.verify import accepted_paths
from ddtree_kernels.ops.kv_commit import kv_commit, kv_table
from ddtree_kernels.ops.kv_commit import reference as commit_reference
from ddtree_kernels.ops.tree_accept import linear_accept, tree_accept
from ddtree_kernels.ops.tree_accept import reference as accept_reference
from ddtree_kernels.ops.tree_attention import reference as attention_reference
from ddtree_kernels.ops.tree_attention import tree_attention
from ddtree_kernels.ops.tree_build import tree_build

BYTES_PER_US = 4.27e6  # read and written by a large copy on an H200
PEAK_FLOP_PER_US = 989e6  # bfloat16, dense, by NVIDIA's data sheet of the H200
VOCAB, SMALL_VOCAB, DEPTH = 151936, 512, 15
LAYERS = 64
FLEX_SHAPES = [(8192, 65), (32768, 17), (32768, 257)]  # context and nodes: one that may fail to lower, two long ones


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _tree_row(shape: str, sets: Sequence[torch.Tensor], budget: int, floor: float, goal: float | None) -> Row:
    """One request's tree over logits [1, L, V] beside the peers; goal None: torch.topk's time."""
    root = torch.zeros(1, dtype=torch.int64, device="cuda")
    ours = graph_us([partial(tree_build, x, root, budget=budget) for x in sets])
    topk = graph_us([partial(torch.topk, x, budget, dim=-1) for x in sets])
    published = events_us([lambda: peers.published_build(sets[0], budget)], 7)
    beside = {"published": published, "torch.topk": topk}
    return Row("tree_build", shape, ours, beside, floor, topk if goal is None else goal)


def build_rows() -> Iterator[Row]:
    """tree_build beside the published algorithm and torch.topk; on flat logits and over a small vocabulary, too."""
    floor = DEPTH * VOCAB * 2 / BYTES_PER_US
    peaked = [draft_logits(1, DEPTH, VOCAB, seed) for seed in range(4)]
    flat = [torch.randn(1, DEPTH, VOCAB, device="cuda").bfloat16() for _ in range(4)]
    for name, sets in (("", peaked), (", noise only", flat)):
        for budget in (16, 64, 256, 1024):
            goal = None if budget <= 256 else 120.0
            yield _tree_row(f"[1, 15, 151936], B {budget}{name}", sets, budget, floor, goal)
    small = [(4 * torch.randn(1, DEPTH, SMALL_VOCAB, device="cuda")).bfloat16() for _ in range(4)]
    for budget in (16, 64, 127, 256):
        yield _tree_row(f"[1, 15, 512], B {budget}", small, budget, 0.0, 12.0 * (budget == 64))
    batch = draft_logits(32, DEPTH, VOCAB, 9)
    roots = torch.zeros(32, dtype=torch.int64, device="cuda")
    ours = graph_us([lambda: tree_build(batch, roots, budget=64)])
    least, published, most = spread_us([lambda: peers.published_build(batch, 64)], 25)
    _note(f"batch 32: the published algorithm took {least:.0f} to {most:.0f} µs in 25 runs, median {published:.0f}")
    yield Row("tree_build", "batch 32, B 64", ours, {"published": published}, 32 * floor, published / 200)


def attention_rows() -> Iterator[Row]:
    """tree_attention beside torch's attention with the dense mask, without any, and compiled FlexAttention at some."""
    compiling = {shape: flex.peer(*shape) for shape in FLEX_SHAPES}
    try:
        yield from _attention_rows(compiling)
    finally:
        for peer in compiling.values():
            peer.end()


def _attention_rows(compiling: dict[tuple[int, int], flex.Peer]) -> Iterator[Row]:
    for context in (2048, 8192, 32768, 131072):
        for nodes in (17, 65, 257):
            sets = 8 if context == 2048 else 2  # more than the L2 holds
            inputs = []
            for _ in range(sets):
                q = torch.randn(1, nodes, 32, 128, device="cuda").bfloat16()
                k, v = (torch.randn(1, context + nodes, 8, 128, device="cuda").bfloat16() for _ in range(2))
                inputs.append((q, k, v))
            words = random_tree(nodes, nodes)[2].cuda()
            length = torch.tensor([context], dtype=torch.int32, device="cuda")
            mask = peers.dense_mask(attention_reference.tree_bits(words, nodes), context, torch.bfloat16)
            ours = graph_us([partial(tree_attention, q, k, v, words[None], length) for q, k, v in inputs])
            dense = graph_us([partial(peers.sdpa, q, k, v, mask) for q, k, v in inputs], 5)
            bare = graph_us([partial(peers.sdpa, q, k, v, None) for q, k, v in inputs], 5)
            others = {"SDPA dense mask": dense, "SDPA no mask": bare}
            if (context, nodes) in compiling:
                found = compiling[context, nodes].time_us()
                if isinstance(found, float):
                    others["FlexAttention"] = found
                else:
                    _note(f"FlexAttention is left out at context {context}, T {nodes}: {found}")
            moved = 2 * (context + nodes) * 8 * 128 * 2 + 2 * nodes * 32 * 128 * 2
            floor = max(moved / BYTES_PER_US, 4 * 32 * nodes * (context + nodes) * 128 / PEAK_FLOP_PER_US)
            goal = 0.0
            if context >= 32768:
                goal = floor * (1.5 if nodes == 17 else 2)
            elif context == 2048 and nodes <= 65:
                goal = 15.0
            yield Row(
                "tree_attention",
                f"32/8 heads of 128, context {context}, T {nodes}",
                ours,
                others,
                floor,
                goal,
            )


def accept_rows() -> Iterator[Row]:
    """tree_accept and linear_accept on walks that accept all."""
    for batch in (1, 8, 32):
        logits = torch.full((batch, DEPTH, 64), -20.0, device="cuda")
        logits[:, torch.arange(DEPTH), torch.arange(DEPTH)] = 0.0
        tree = tree_build(logits, torch.zeros(batch, dtype=torch.int64, device="cuda"), budget=64)
        target = (tree.depths.clamp(min=0)).long()  # the chain's token after depth d is d
        ours = graph_us([lambda: tree_accept(tree, target, max_depth=DEPTH)] * 10)
        plain = events_us(
            [lambda: accept_reference.tree_walk(tree.tokens, tree.first_child, tree.next_sibling, target, DEPTH)], 5
        )
        goal = 10.0 if batch == 1 else 0.0
        yield Row("tree_accept", f"batch {batch}, T 65, 16 accepted", ours, {"reference": plain}, 0.0, goal)
        draft = torch.arange(DEPTH, device="cuda").expand(batch, DEPTH).contiguous()
        chain = torch.arange(DEPTH + 1, device="cuda").expand(batch, DEPTH + 1).contiguous()
        ours = graph_us([lambda: linear_accept(draft, chain)] * 10)
        plain = events_us([lambda: accept_reference.linear_walk(draft, chain)], 5)
        yield Row("linear_accept", f"batch {batch}, L 15", ours, {"reference": plain})


def commit_rows() -> Iterator[Row]:
    """kv_commit of 16 accepted rows in all layers."""
    rate = BYTES_PER_US
    for batch in (1, 8, 32):
        caches = [torch.randn(batch, 1024, 8, 128, device="cuda").bfloat16() for _ in range(2 * LAYERS)]
        table = kv_table(caches)
        accepted = accepted_paths(batch, 65, 16, 3)
        context = torch.randint(0, 900, (batch,), device="cuda")
        ours = graph_us([lambda: kv_commit(table, accepted, context)] * 4)
        plain = events_us([lambda: commit_reference.commit(caches, accepted.nodes, accepted.counts, context)], 3)
        moved = int((accepted.nodes > torch.arange(16, device="cuda")).sum()) * len(caches) * 2 * 2048
        goal = 10.0 if batch == 1 else 2 * moved / rate
        shape = f"64 layers, batch {batch}, 8 heads of 128"
        yield Row("kv_commit", shape, ours, {"reference": plain}, moved / rate, goal)


def round_rows() -> Iterator[Row]:
    """Build, accept and commit in one graph, after one pass under torch's detector of synchronisations."""
    for batch in (1, 8):
        logits = draft_logits(batch, DEPTH, VOCAB, 5)
        root = torch.zeros(batch, dtype=torch.int64, device="cuda")
        target = torch.randint(0, VOCAB, (batch, 65), device="cuda")
        table = kv_table([torch.randn(batch, 1024, 8, 128, device="cuda").bfloat16() for _ in range(2 * LAYERS)])
        context = torch.full((batch,), 500, dtype=torch.int32, device="cuda")

        def one() -> None:
            tree = tree_build(logits, root, budget=64)
            kv_commit(table, tree_accept(tree, target, max_depth=DEPTH), context)

        one()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            one()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        goal = 150.0 if batch == 1 else 0.0
        yield Row("round", f"batch {batch}, B 64, 64 layers: build + accept + commit", graph_us([one]), {}, 0.0, goal)


CASES: dict[str, Callable[[], Iterator[Row]]] = {
    "tree_build": build_rows,
    "tree_attention": attention_rows,
    "tree_accept": accept_rows,
    "kv_commit": commit_rows,
    "round": round_rows,
}
