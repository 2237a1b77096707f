"""Launches of tree_build's first half: ranked tokens of every row, and each request's floor."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ddtree_kernels.ops import pdl
from ddtree_kernels.ops.checks import next_power_of_two
from ddtree_kernels.ops.tree_build import triton_rows as kernels
from ddtree_kernels.ops.tree_build.tuning import DEFAULT, Tuning

WIDEST = 16384  # group maxima that one program of row_stats holds
EVERYTHING = 1 << 30  # a budget out of reach: the floor is -inf, which keeps all
SHIFT = {torch.bfloat16: 16, torch.float16: 13, torch.float32: 0}  # low float32 bits that the type never sets


@dataclass(frozen=True)
class Ranked:
    """What is found of N requests, L positions, k tokens; `lengths` says how many are valid.

    log_probs [N, L, k] float32, tokens [N, L, k] int32, lengths [N, L] int32, floors [N] float32: a score that the
    budget's best prefixes surely exceed, and below which tokens may be missing.
    """

    log_probs: torch.Tensor
    tokens: torch.Tensor
    lengths: torch.Tensor
    floors: torch.Tensor


def unwritten(batch: int, depth: int, k: int, device: torch.device) -> Ranked:
    """Room for the result."""
    return Ranked(
        log_probs=torch.empty(batch, depth, k, dtype=torch.float32, device=device),
        tokens=torch.empty(batch, depth, k, dtype=torch.int32, device=device),
        lengths=torch.empty(batch, depth, dtype=torch.int32, device=device),
        floors=torch.empty(batch, dtype=torch.float32, device=device),
    )


def chains(logits: torch.Tensor, tuning: Tuning) -> bool:
    """Whether the launches for these logits [N, L, V] are chained."""
    return tuning.pdl and pdl.supported(logits.device)


def group_size(vocab: int, k: int) -> int:
    """Tokens a group, near sqrt(vocab / k): balances the maxima against the tokens that are read again."""
    group = 64 if k <= 64 else 32 if k <= 256 else 16
    while vocab > group * WIDEST:
        group *= 2
    return group


def rank_tokens(
    logits: torch.Tensor,
    budget: int,
    k: int,
    temperature: float = 1.0,
    prune: bool = True,
    tuning: Tuning = DEFAULT,
) -> Ranked:
    """The k best tokens of every position in rank order, and the floors.

    With prune only those tokens that the budget's floor leaves a chance; a small vocabulary's are given whole.
    Two launches for a small vocabulary, else five.
    """
    batch, depth, vocab = logits.shape
    tuning, reach = tuning.for_budget(budget), budget if prune else EVERYTHING
    if not tuning.counted(batch * depth, vocab):
        return _by_lists(logits, reach, k, temperature, tuning)
    ranked = unwritten(batch, depth, k, logits.device)
    row_step, step_counts = order(logits, ranked, temperature, tuning)
    row_chain, path_counts = torch.empty_like(row_step), torch.empty_like(step_counts)
    _floors(row_step, row_chain, step_counts, path_counts, ranked.floors, reach, depth, tuning, chains(logits, tuning))
    return ranked


def order(
    logits: torch.Tensor, ranked: Ranked, temperature: float, tuning: Tuning, counted: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ranks the rows of a small vocabulary by counting, one launch, into `ranked` but for its floors.

    Returns each row's best log-probability [N * L] and how many tokens lose how much [N * L * bins], both float32;
    they and the lengths are unwritten unless counted.
    """
    batch, depth, vocab = logits.shape
    rows, each = batch * depth, tuning.order_each
    row_step, step_counts = torch.empty(rows * (1 + tuning.bins), dtype=torch.float32, device=logits.device).split(
        [rows, rows * tuning.bins]
    )
    kernels.order_kernel[(-(-vocab // each), rows)](
        logits,
        ranked.log_probs,
        ranked.tokens,
        ranked.lengths,
        row_step,
        step_counts,
        logits.stride(0),
        logits.stride(1),
        depth,
        vocab,
        1.0 / temperature,
        K=ranked.log_probs.shape[2],
        VOCAB_PAD=max(32, next_power_of_two(vocab)),
        EACH=each,
        COUNTED=counted,
        BINS=tuning.bins,
        PER_NAT=tuning.per_nat,
        PDL=chains(logits, tuning),
        num_warps=tuning.order_warps,
    )
    return row_step, step_counts


def _floors(
    row_step: torch.Tensor,
    row_chain: torch.Tensor,
    step_counts: torch.Tensor,
    path_counts: torch.Tensor,
    floors: torch.Tensor,
    reach: int,
    depth: int,
    tuning: Tuning,
    chained: bool,
) -> None:
    kernels.floor_of_counts_kernel[(floors.shape[0],)](
        row_step,
        row_chain,
        step_counts,
        path_counts,
        floors,
        depth,
        BUDGET=reach,
        DEPTH_PAD=next_power_of_two(depth),
        BINS=tuning.bins,
        PER_NAT=tuning.per_nat,
        num_warps=4 if tuning.bins <= 32 else 8,
        num_stages=1,
        **pdl.after(chained),
    )


def _by_lists(logits: torch.Tensor, reach: int, k: int, temperature: float, tuning: Tuning) -> Ranked:
    """The pass over the logits, each row's losses, each request's floor, lists of tokens, their ranks."""
    batch, depth, vocab = logits.shape
    rows = batch * depth
    group = group_size(vocab, k)
    groups = -(-vocab // group)
    each = min(max(16, tuning.split // group), max(16, next_power_of_two(groups)))
    splits = -(-groups // each)
    groups_pad = max(16, next_power_of_two(groups))
    room = max(256, 4 * next_power_of_two(k))
    device = logits.device
    chained = chains(logits, tuning)
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
    sizes = [rows, rows * k, rows * groups]
    found, chosen, group_list = torch.empty(sum(sizes), dtype=torch.int32, device=device).split(sizes)
    ranked = unwritten(batch, depth, k, device)
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
        inverse,
        GROUP=group,
        GROUPS_EACH=each,
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
    _floors(row_step, row_chain, step_counts, path_counts, ranked.floors, reach, depth, tuning, chained)
    few = rows <= tuning.many_rows
    at_once = 1024 // group
    gathered = min(4 * at_once if few else 1024, groups_pad)
    kernels.gather_kernel[(-(-groups // gathered), rows)](
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
        group_list,
        logits.stride(0),
        logits.stride(1),
        depth,
        vocab,
        groups,
        inverse,
        GROUP=group,
        GROUPS_EACH=gathered,
        EACH=at_once,
        ROOM=room,
        SHIFT=SHIFT[logits.dtype],
        PER_NAT=tuning.per_nat,
        num_warps=4,
        num_stages=1,
        **pdl.after(chained),
    )
    placed = 16
    kernels.place_kernel[(min(64 if few else 2, -(-2 * k // placed)), rows)](
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
        EACH=placed,
        CHUNK=128,
        ROOM=room,
        SHIFT=SHIFT[logits.dtype],
        num_warps=4,
        num_stages=1,
        **pdl.after(chained),
    )
    return ranked
