"""Launches of tree_build's kernels: the choice between its ways, and its second half from ranked tokens on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ddtree_kernels.ops import pdl
from ddtree_kernels.ops.checks import next_power_of_two
from ddtree_kernels.ops.tree_build import pops, ranking
from ddtree_kernels.ops.tree_build import triton as kernels
from ddtree_kernels.ops.tree_build.ranking import Ranked
from ddtree_kernels.ops.tree_build.tree import DraftTree, words_for
from ddtree_kernels.ops.tree_build.tuning import DEFAULT, Tuning


@dataclass(frozen=True)
class Scratch:
    """Entries of every request before they are nodes: `room` places each, unwritten; see _expand."""

    score: torch.Tensor
    parent: torch.Tensor
    rank: torch.Tensor
    child: torch.Tensor
    node_of: torch.Tensor
    level_start: torch.Tensor
    ends: torch.Tensor
    totals: torch.Tensor
    entry_of: torch.Tensor
    lanes: int
    most: int
    room: int


def scratch_for(batch: int, depth: int, budget: int, device: torch.device) -> Scratch:
    """Room for the entries of a budget: a level holds at most `most`."""
    pad = max(64, next_power_of_two(budget))
    most = 4 * pad
    room = depth * most + 1
    sizes = [room, room, room, room, depth + 2, most, 3, budget + 1]
    parent, rank, child, node_of, level_start, ends, totals, entry_of = torch.empty(
        batch * sum(sizes), dtype=torch.int32, device=device
    ).split([batch * size for size in sizes])
    return Scratch(
        score=torch.empty(batch * room, dtype=torch.float32, device=device),
        parent=parent,
        rank=rank,
        child=child,
        node_of=node_of,
        level_start=level_start,
        ends=ends,
        totals=totals,
        entry_of=entry_of,
        lanes=min(pad, 256),
        most=most,
        room=room,
    )


def unwritten(batch: int, budget: int, device: torch.device) -> DraftTree:
    """A tree whose every place the kernels will write."""
    nodes = budget + 1

    def empty(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    return DraftTree(
        tokens=empty(batch, nodes, dtype=torch.int64),
        parents=empty(batch, nodes),
        depths=empty(batch, nodes),
        log_probs=empty(batch, nodes, dtype=torch.float32),
        counts=empty(batch),
        visibility=empty(batch, nodes, words_for(nodes), dtype=torch.int64),
        first_child=empty(batch, nodes),
        next_sibling=empty(batch, nodes),
    )


def near(budget: int) -> int:
    """Entries of a level that are held in registers: twice the budget, 128 to 256."""
    return min(256, 2 * max(64, next_power_of_two(budget)))


def select(
    ranked: Ranked, root_tokens: torch.Tensor, budget: int, spine: bool = False, chained: bool = False
) -> DraftTree:
    """The tree of every request: all prefixes above the floor, their order, their links; three launches.

    chained: the launch before was ranking.rank_tokens's last and all are chained (ops/pdl.py).
    """
    batch, depth, k = ranked.log_probs.shape
    nodes, words = budget + 1, words_for(budget + 1)
    scratch = scratch_for(batch, depth, budget, root_tokens.device)
    tree = unwritten(batch, budget, root_tokens.device)
    kernels.expand_kernel[(batch,)](
        ranked.log_probs,
        ranked.lengths,
        ranked.floors,
        scratch.score,
        scratch.parent,
        scratch.rank,
        scratch.child,
        scratch.level_start,
        scratch.ends,
        scratch.totals,
        depth,
        K=k,
        BUDGET=budget,
        LANES=scratch.lanes,
        MOST=scratch.most,
        ROOM=scratch.room,
        SPINE=spine,
        NEAR=near(budget),
        num_warps=4 if budget <= 64 else 8,
        num_stages=1,
        **pdl.after(chained),
    )
    each = 16
    kernels.rank_kernel[(min(128, -(-3 * nodes // each)), batch)](
        scratch.score,
        scratch.rank,
        scratch.level_start,
        scratch.totals,
        ranked.tokens,
        root_tokens,
        scratch.node_of,
        scratch.entry_of,
        tree.tokens,
        tree.depths,
        tree.log_probs,
        tree.counts,
        depth,
        K=k,
        BUDGET=budget,
        ROOM=scratch.room,
        EACH=each,
        CHUNK=128,
        DEPTH_PAD=next_power_of_two(depth),
        SPINE=spine,
        num_warps=4,
        num_stages=1,
        **pdl.after(chained),
    )
    kernels.links_kernel[(-(-nodes // each), batch)](
        scratch.parent,
        scratch.child,
        scratch.totals,
        scratch.node_of,
        scratch.entry_of,
        tree.tokens,
        tree.parents,
        tree.depths,
        tree.log_probs,
        tree.visibility,
        tree.first_child,
        tree.next_sibling,
        NODES=nodes,
        ROOM=scratch.room,
        WORDS=words,
        WORDS_PAD=next_power_of_two(words),
        EACH=each,
        num_warps=4,
        num_stages=1,
        **pdl.after(chained),
    )
    return tree


def grow(
    logits: torch.Tensor,
    root_tokens: torch.Tensor,
    budget: int,
    k: int,
    spine: bool = False,
    temperature: float = 1.0,
    tuning: Tuning = DEFAULT,
) -> DraftTree:
    """The tree of every request over a small vocabulary in two launches: ranks by counting, one program for the rest.

    Right for any budget; made for those where one program is enough.
    """
    batch, depth, _ = logits.shape
    words = words_for(budget + 1)
    ranked = ranking.unwritten(batch, depth, k, logits.device)
    row_step, step_counts = ranking.order(logits, ranked, temperature, tuning)
    scratch = scratch_for(batch, depth, budget, logits.device)
    tree = unwritten(batch, budget, logits.device)
    kernels.grow_kernel[(batch,)](
        row_step,
        step_counts,
        torch.empty_like(step_counts),
        ranked.log_probs,
        ranked.lengths,
        ranked.tokens,
        root_tokens,
        scratch.score,
        scratch.parent,
        scratch.rank,
        scratch.child,
        scratch.level_start,
        scratch.ends,
        scratch.node_of,
        scratch.entry_of,
        tree.tokens,
        tree.parents,
        tree.depths,
        tree.log_probs,
        tree.counts,
        tree.visibility,
        tree.first_child,
        tree.next_sibling,
        depth,
        K=k,
        BUDGET=budget,
        LANES=scratch.lanes,
        MOST=scratch.most,
        ROOM=scratch.room,
        SPINE=spine,
        NEAR=near(budget),
        DEPTH_PAD=next_power_of_two(depth),
        BINS=tuning.bins,
        PER_NAT=tuning.per_nat,
        EACH=32,
        CHUNK=128,
        LINKED=min(256, next_power_of_two(budget + 1)),
        WORDS=words,
        WORDS_PAD=next_power_of_two(words),
        num_warps=tuning.grow_warps if budget <= 64 else 8,
        num_stages=1,
        **pdl.after(ranking.chains(logits, tuning)),
    )
    return tree


def pop(
    ranked: Ranked, root_tokens: torch.Tensor, budget: int, whole: bool = False, chained: bool = False
) -> DraftTree:
    """The tree of every request node by node, one launch; only for budgets and depths that Tuning.popped allows.

    whole: every place of the ranked tokens is written, with -inf beyond the valid ones; else those become so here.
    chained: as select.
    """
    batch, depth, k = ranked.log_probs.shape
    tree = unwritten(batch, budget, root_tokens.device)
    pops.pop_kernel[(batch,)](
        ranked.log_probs,
        ranked.lengths,
        ranked.tokens,
        root_tokens,
        tree.tokens,
        tree.parents,
        tree.depths,
        tree.log_probs,
        tree.counts,
        tree.visibility,
        tree.first_child,
        tree.next_sibling,
        depth,
        K=k,
        BUDGET=budget,
        SLOTS=max(32, next_power_of_two(budget)),
        CHUNK=1024,
        DOUBLINGS=next_power_of_two(depth).bit_length() - 1,
        WORDS=words_for(budget + 1),
        WHOLE=whole,
        num_warps=1,
        num_stages=1,
        **pdl.after(chained),
    )
    return tree


def tree_build(
    draft_logits: torch.Tensor,
    root_tokens: torch.Tensor,
    budget: int,
    top_k: int | None = None,
    spine: bool = False,
    temperature: float = 1.0,
    tuning: Tuning = DEFAULT,
) -> DraftTree:
    """As the public function of this name, arguments unchecked; two to eight launches, no synchronisation."""
    batch, depth, vocab = draft_logits.shape
    k = min(budget, vocab, top_k or budget)
    counted = tuning.counted(batch * depth, vocab)
    popped = not spine and tuning.popped(budget, depth)
    chained = ranking.chains(draft_logits, tuning)
    if counted and popped:
        ranked = ranking.unwritten(batch, depth, k, draft_logits.device)
        ranking.order(draft_logits, ranked, temperature, tuning, counted=False)
        return pop(ranked, root_tokens, budget, True, chained)
    if counted and budget <= tuning.grow:
        return grow(draft_logits, root_tokens, budget, k, spine, temperature, tuning)
    ranked = ranking.rank_tokens(draft_logits, budget, k, temperature, tuning=tuning)
    if popped:
        return pop(ranked, root_tokens, budget, False, chained)
    return select(ranked, root_tokens, budget, spine, chained)
