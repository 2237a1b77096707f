"""Launches of tree_build's kernels: block sizes, scratch, order."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ddtree_kernels.ops import pdl
from ddtree_kernels.ops.checks import next_power_of_two
from ddtree_kernels.ops.tree_build import triton as kernels
from ddtree_kernels.ops.tree_build.tree import DraftTree, words_for
from ddtree_kernels.ops.tree_build.tuning import DEFAULT, Tuning

WIDEST = 16384  # group maxima that one program of the third holds
COARSE_LANES = 8192  # coarse maxima of all rows of a request that the second holds
MANY_ROWS = 132
LOG2_E = 1.4426950408889634
SHIFT = {torch.bfloat16: 16, torch.float16: 13, torch.float32: 0}  # low float32 bits that the type never sets


@dataclass(frozen=True)
class Ranked:
    """What the first three kernels find of N requests, L positions, k tokens; `lengths` says how many are valid.

    log_probs [N, L, k] float32, tokens [N, L, k] int32, lengths [N, L] int32, floors [N] float32: a score that the
    budget's best prefixes surely exceed, and below which tokens may be missing.
    """

    log_probs: torch.Tensor
    tokens: torch.Tensor
    lengths: torch.Tensor
    floors: torch.Tensor


def group_size(vocab: int, k: int) -> int:
    """Tokens a group, near sqrt(vocab / k): balances the maxima against the tokens that are read again."""
    group = 64 if k <= 64 else 32 if k <= 256 else 16
    while vocab > group * WIDEST:
        group *= 2
    return group


def coarse_each(splits_pad: int, depth_pad: int, budget: int, groups_each: int) -> int:
    """Coarse maxima of one split: the floor needs about the budget's root of them a row, and they must fit."""
    wanted = 128 if budget <= 64 else 256
    fitting = max(1, min(wanted, COARSE_LANES // depth_pad) // splits_pad)
    return min(1 << (fitting.bit_length() - 1), groups_each)


def rank_tokens(
    logits: torch.Tensor,
    budget: int,
    k: int,
    temperature: float = 1.0,
    prune: bool = True,
    tuning: Tuning = DEFAULT,
) -> Ranked:
    """The k best tokens of every position in rank order; with prune only those that the budget's floor leaves a chance.

    Three launches: one pass over the logits, the floor of each request, the top of each row; with lists five.
    """
    if tuning.lists:
        return rank_by_lists(logits, budget, k, temperature, prune, tuning)
    chained = tuning.pdl and pdl.supported(logits.device)
    batch, depth, vocab = logits.shape
    rows = batch * depth
    group = group_size(vocab, k)
    groups = -(-vocab // group)
    each = min(max(16, tuning.split // group), max(16, next_power_of_two(groups)))
    splits = -(-groups // each)
    splits_pad, depth_pad = next_power_of_two(splits), next_power_of_two(depth)
    coarse = coarse_each(splits_pad, depth_pad, budget, each)
    k_pad = max(16, next_power_of_two(k))
    groups_pad = max(16, next_power_of_two(groups))
    device = logits.device
    group_best = torch.empty(rows * groups, dtype=torch.float32, device=device)
    sizes = [rows * splits * coarse, rows * splits, rows, rows, rows]
    sizes += [batch * depth_pad * tuning.bins, batch * (depth_pad + 1) * tuning.bins]
    coarse_best, part_sum, row_shift, row_log_total, row_chain, step_counts, path_counts = torch.empty(
        sum(sizes), dtype=torch.float32, device=device
    ).split(sizes)
    lists = torch.empty(3, rows * k_pad, dtype=torch.int32, device=device)
    ranked = Ranked(
        log_probs=torch.empty(batch, depth, k, dtype=torch.float32, device=device),
        tokens=torch.empty(batch, depth, k, dtype=torch.int32, device=device),
        lengths=torch.empty(batch, depth, dtype=torch.int32, device=device),
        floors=torch.empty(batch, dtype=torch.float32, device=device),
    )
    inverse = 1.0 / temperature
    kernels.group_max_kernel[(splits, rows)](
        logits,
        group_best,
        coarse_best,
        part_sum,
        logits.stride(0),
        logits.stride(1),
        depth,
        vocab,
        groups,
        inverse * LOG2_E,
        GROUP=group,
        GROUPS_EACH=each,
        COARSE_EACH=coarse,
        LEAN=tuning.lean,
        PDL=chained,
        num_warps=tuning.warps,
    )
    kernels.floor_kernel[(batch,)](
        coarse_best,
        part_sum,
        row_shift,
        row_log_total,
        row_chain,
        step_counts,
        path_counts,
        ranked.floors,
        depth,
        splits,
        inverse,
        K=k,
        # without reach the floor is -inf, which keeps all
        BUDGET=budget if prune else 1 << 30,
        DEPTH_PAD=depth_pad,
        SPLITS_PAD=splits_pad,
        COARSE_EACH=coarse,
        BINS=tuning.bins,
        PER_NAT=tuning.per_nat,
        num_warps=4 if budget <= 64 else 8,
        num_stages=1,
        **pdl.after(chained),
    )
    lanes = max(groups_pad, k_pad * group)
    warps, limit = 32 if lanes > WIDEST else 16 if lanes > 8192 else 8, {}
    if lanes <= 4096 and rows > MANY_ROWS:  # more rows than multiprocessors: small programs, several on each
        warps, limit = 4, {"maxnreg": 128}
    kernels.row_top_kernel[(rows,)](
        logits,
        group_best,
        row_shift,
        row_log_total,
        row_chain,
        ranked.floors,
        lists[0],
        lists[1],
        lists[2],
        ranked.log_probs,
        ranked.tokens,
        ranked.lengths,
        logits.stride(0),
        logits.stride(1),
        depth,
        vocab,
        groups,
        inverse,
        K=k,
        K_GROUPS=min(k, groups),
        K_PAD=k_pad,
        GROUP=group,
        GROUPS_PAD=groups_pad,
        CHUNK=min(k_pad, 1024 // group),
        SMALL=min(k_pad, 128),
        SHIFT=SHIFT[logits.dtype],
        WIDE=lanes > WIDEST,
        num_warps=warps,
        num_stages=1,
        **limit,
        **pdl.after(chained),
    )
    return ranked


def rank_by_lists(logits: torch.Tensor, budget: int, k: int, temperature: float, prune: bool, tuning: Tuning) -> Ranked:
    """As rank_tokens, in five launches: the pass, each row's losses, each request's floor, lists of tokens, ranks."""
    batch, depth, vocab = logits.shape
    rows = batch * depth
    group = group_size(vocab, k)
    groups = -(-vocab // group)
    each = min(max(16, tuning.split // group), max(16, next_power_of_two(groups)))
    splits = -(-groups // each)
    depth_pad = next_power_of_two(depth)
    groups_pad = max(16, next_power_of_two(groups))
    room = max(256, 4 * next_power_of_two(k))
    device = logits.device
    chained = tuning.pdl and pdl.supported(device)
    bins = tuning.bins
    sizes = [rows * groups, rows * splits, rows * splits, *[rows] * 6, rows * bins, rows * bins]
    (
        group_best,
        part_best,
        part_sum,
        row_top,
        row_shift,
        row_log_total,
        row_step,
        row_edge,
        row_chain,
        step_counts,
        path_counts,
    ) = torch.empty(sum(sizes), dtype=torch.float32, device=device).split(sizes)
    listed = torch.empty(rows * room, dtype=torch.int64, device=device)
    found, chosen = torch.empty(rows + rows * k, dtype=torch.int32, device=device).split([rows, rows * k])
    ranked = Ranked(
        log_probs=torch.empty(batch, depth, k, dtype=torch.float32, device=device),
        tokens=torch.empty(batch, depth, k, dtype=torch.int32, device=device),
        lengths=torch.empty(batch, depth, dtype=torch.int32, device=device),
        floors=torch.empty(batch, dtype=torch.float32, device=device),
    )
    inverse = 1.0 / temperature
    kernels.group_max_kernel[(splits, rows)](
        logits,
        group_best,
        part_best,
        part_sum,
        logits.stride(0),
        logits.stride(1),
        depth,
        vocab,
        groups,
        inverse * LOG2_E,
        GROUP=group,
        GROUPS_EACH=each,
        COARSE_EACH=1,
        LEAN=tuning.lean,
        PDL=chained,
        num_warps=tuning.warps,
    )
    kernels.row_stats_kernel[(rows,)](
        group_best,
        part_best,
        part_sum,
        row_top,
        row_shift,
        row_log_total,
        row_step,
        row_edge,
        found,
        step_counts,
        splits,
        groups,
        inverse,
        K=k,
        GROUPS_PAD=groups_pad,
        SPLITS_PAD=next_power_of_two(splits),
        BINS=bins,
        PER_NAT=tuning.per_nat,
        num_warps=4 if groups_pad <= 4096 else 8 if groups_pad <= 8192 else 16,
        num_stages=1,
        **pdl.after(chained),
    )
    kernels.floor_of_counts_kernel[(batch,)](
        row_step,
        row_chain,
        step_counts,
        path_counts,
        ranked.floors,
        depth,
        # without reach the floor is -inf, which keeps all
        BUDGET=budget if prune else 1 << 30,
        DEPTH_PAD=depth_pad,
        BINS=bins,
        PER_NAT=tuning.per_nat,
        num_warps=8 if bins <= 64 else 16,
        num_stages=1,
        **pdl.after(chained),
    )
    few, steps = 1024 // group, 4 if rows <= MANY_ROWS else 8
    kernels.gather_kernel[(-(-groups // (few * steps)), rows)](
        logits,
        group_best,
        row_top,
        row_shift,
        row_log_total,
        row_edge,
        row_chain,
        ranked.floors,
        found,
        listed,
        logits.stride(0),
        logits.stride(1),
        depth,
        vocab,
        groups,
        inverse,
        GROUP=group,
        EACH=few,
        STEPS=steps,
        ROOM=room,
        SHIFT=SHIFT[logits.dtype],
        PER_NAT=tuning.per_nat,
        num_warps=4,
        num_stages=1,
        **pdl.after(chained),
    )
    at_once = 16
    kernels.place_kernel[(min(64 if rows <= MANY_ROWS else 8, -(-2 * k // at_once)), rows)](
        logits,
        group_best,
        row_shift,
        row_log_total,
        found,
        listed,
        chosen,
        ranked.log_probs,
        ranked.tokens,
        ranked.lengths,
        logits.stride(0),
        logits.stride(1),
        depth,
        vocab,
        groups,
        inverse,
        K=k,
        K_GROUPS=min(k, groups),
        GROUP=group,
        EACH=at_once,
        CHUNK=128,
        ROOM=room,
        SHIFT=SHIFT[logits.dtype],
        num_warps=4,
        num_stages=1,
        **pdl.after(chained),
    )
    return ranked


def select(
    ranked: Ranked,
    root_tokens: torch.Tensor,
    budget: int,
    spine: bool = False,
    chained: bool = False,
    quick: bool = False,
) -> DraftTree:
    """The tree of every request: all prefixes above the floor, their order, their links; three launches.

    chained: the launch before was rank_tokens's last and all are chained (ops/pdl.py). quick: as in Tuning.
    """
    batch, depth, k = ranked.log_probs.shape
    nodes, words = budget + 1, words_for(budget + 1)
    pad = max(64, next_power_of_two(budget))
    most = 4 * pad
    room = depth * most + 1
    device = root_tokens.device

    def empty(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    tree = DraftTree(
        tokens=empty(batch, nodes, dtype=torch.int64),
        parents=empty(batch, nodes),
        depths=empty(batch, nodes),
        log_probs=empty(batch, nodes, dtype=torch.float32),
        counts=empty(batch),
        visibility=empty(batch, nodes, words, dtype=torch.int64),
        first_child=empty(batch, nodes),
        next_sibling=empty(batch, nodes),
    )
    sizes = [room, room, room, room, depth + 2, most, 3, nodes]
    parent, rank, child, node_of, level_start, ends, totals, entry_of = empty(batch * sum(sizes)).split(
        [batch * size for size in sizes]
    )
    score = empty(batch * room, dtype=torch.float32)
    kernels.expand_kernel[(batch,)](
        ranked.log_probs,
        ranked.lengths,
        ranked.floors,
        score,
        parent,
        rank,
        child,
        level_start,
        ends,
        totals,
        depth,
        K=k,
        BUDGET=budget,
        LANES=min(pad, 256),
        MOST=most,
        ROOM=room,
        SPINE=spine,
        QUICK=min(pad, 256) if quick else 0,
        num_warps=4 if quick and pad <= 64 else 2 if pad <= 64 else 4 if pad <= 128 else 8,
        num_stages=1,
        **pdl.after(chained),
    )
    each = 16
    kernels.rank_kernel[(min(128, -(-3 * nodes // each)), batch)](
        score,
        rank,
        level_start,
        totals,
        ranked.tokens,
        root_tokens,
        node_of,
        entry_of,
        tree.tokens,
        tree.depths,
        tree.log_probs,
        tree.counts,
        depth,
        K=k,
        BUDGET=budget,
        ROOM=room,
        EACH=each,
        CHUNK=128,
        DEPTH_PAD=next_power_of_two(depth),
        SPINE=spine,
        num_warps=4,
        num_stages=1,
        **pdl.after(chained),
    )
    kernels.links_kernel[(-(-nodes // each), batch)](
        parent,
        child,
        totals,
        node_of,
        entry_of,
        tree.tokens,
        tree.parents,
        tree.depths,
        tree.log_probs,
        tree.visibility,
        tree.first_child,
        tree.next_sibling,
        depth,
        NODES=nodes,
        ROOM=room,
        WORDS=words,
        WORDS_PAD=next_power_of_two(words),
        EACH=each,
        num_warps=4,
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
    """As the public function of this name, arguments unchecked; six or eight launches, no synchronisation."""
    k = min(budget, draft_logits.shape[2], top_k or budget)
    ranked = rank_tokens(draft_logits, budget, k, temperature, tuning=tuning)
    chained = tuning.pdl and pdl.supported(draft_logits.device)
    return select(ranked, root_tokens, budget, spine, chained, tuning.quick)
