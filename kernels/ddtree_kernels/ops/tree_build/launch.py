"""Launches of tree_build's kernels: block sizes, scratch, order."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ddtree_kernels.ops.checks import next_power_of_two
from ddtree_kernels.ops.tree_build import triton as kernels
from ddtree_kernels.ops.tree_build.tree import DraftTree, words_for

SPLIT = 8192  # tokens of one program of the first pass
WIDEST = 16384  # group maxima that one program of the second pass holds
SHIFT = {torch.bfloat16: 16, torch.float16: 13, torch.float32: 0}  # low float32 bits that the type never sets


@dataclass(frozen=True)
class TopShape:
    """How one row's top-k is cut up."""

    k: int
    group: int
    groups: int

    @property
    def k_pad(self) -> int:
        """Slots of the row's lists."""
        return max(16, next_power_of_two(self.k))

    @property
    def groups_pad(self) -> int:
        """Lanes for the row's group maxima."""
        return max(16, next_power_of_two(self.groups))

    @property
    def candidates(self) -> int:
        """Lanes for the members of the groups that are read again."""
        return self.k_pad * self.group


def top_shape(vocab: int, k: int) -> TopShape:
    """Groups near sqrt(vocab / k) tokens, which balances the maxima against the tokens that are read again."""
    group = 64 if k <= 64 else 32 if k <= 256 else 16
    while vocab > group * WIDEST:
        group *= 2
    return TopShape(k, group, -(-vocab // group))


def top_log_probs(
    logits: torch.Tensor, k: int, temperature: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """[N, L, k] float32 log-probabilities and int32 tokens of the k best of every position, in rank order."""
    batch, depth, vocab = logits.shape
    rows = batch * depth
    shape = top_shape(vocab, k)
    each = max(16, SPLIT // shape.group)
    splits = -(-shape.groups // each)
    device = logits.device
    group_best = torch.empty(rows * shape.groups, dtype=torch.float32, device=device)
    parts = torch.empty(2, rows * splits, dtype=torch.float32, device=device)
    lists = torch.empty(3, rows * shape.k_pad, dtype=torch.int32, device=device)
    log_probs = torch.empty(batch, depth, k, dtype=torch.float32, device=device)
    tokens = torch.empty(batch, depth, k, dtype=torch.int32, device=device)
    inverse = 1.0 / temperature
    kernels.group_max_kernel[(splits, rows)](
        logits,
        group_best,
        parts[0],
        parts[1],
        logits.stride(0),
        logits.stride(1),
        depth,
        vocab,
        shape.groups,
        inverse,
        GROUP=shape.group,
        GROUPS_EACH=each,
        num_warps=8,
    )
    lanes = max(shape.groups_pad, shape.candidates)
    kernels.row_top_kernel[(rows,)](
        logits,
        group_best,
        parts[0],
        parts[1],
        lists[0],
        lists[1],
        lists[2],
        log_probs,
        tokens,
        logits.stride(0),
        logits.stride(1),
        depth,
        vocab,
        shape.groups,
        splits,
        inverse,
        K=k,
        K_GROUPS=min(k, shape.groups),
        K_PAD=shape.k_pad,
        GROUP=shape.group,
        GROUPS_PAD=shape.groups_pad,
        SPLITS_PAD=next_power_of_two(splits),
        SHIFT=SHIFT[logits.dtype],
        WIDE=lanes > WIDEST,
        num_warps=32 if lanes > WIDEST else 16 if lanes > 4096 else 8,
        num_stages=1,
    )
    return log_probs, tokens


def select(
    log_probs: torch.Tensor, top_tokens: torch.Tensor, root_tokens: torch.Tensor, budget: int, spine: bool = False
) -> DraftTree:
    """The tree of every request from its ranked log-probabilities and tokens, both [N, L, k]."""
    batch, depth, k = log_probs.shape
    nodes, words = budget + 1, words_for(budget + 1)
    pad = max(16, next_power_of_two(budget))
    device = log_probs.device

    def integers(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    tree = DraftTree(
        tokens=integers(batch, nodes, dtype=torch.int64),
        parents=integers(batch, nodes),
        depths=integers(batch, nodes),
        log_probs=integers(batch, nodes, dtype=torch.float32),
        counts=integers(batch),
        visibility=integers(batch, nodes, words, dtype=torch.int64),
        first_child=integers(batch, nodes),
        next_sibling=integers(batch, nodes),
    )
    level = batch * (depth + 1) * pad
    scratch = integers(3 * level + 3 * batch * pad)
    level_origin, level_node, level_score, ends, best_id = scratch.split(
        [level, level, level, batch * pad, 2 * batch * pad]
    )
    best_score = integers(2 * batch * pad, dtype=torch.float32)
    kernels.select_kernel[(batch,)](
        log_probs,
        top_tokens,
        root_tokens,
        tree.tokens,
        tree.parents,
        tree.depths,
        tree.log_probs,
        tree.counts,
        level_score.view(torch.float32),
        level_origin,
        level_node,
        ends,
        best_score,
        best_id,
        depth,
        K=k,
        BUDGET=budget,
        PAD=pad,
        SMALL=min(pad, 128),
        DEPTH_PAD=next_power_of_two(depth),
        WAYS=8,
        STEPS=max(k, budget).bit_length(),
        SPINE=spine,
        num_warps=2 if pad <= 64 else 4 if pad <= 256 else 8,
        num_stages=1,
    )
    each = 16
    kernels.links_kernel[(-(-nodes // each), batch)](
        tree.parents,
        tree.counts,
        tree.visibility,
        tree.first_child,
        tree.next_sibling,
        depth,
        NODES=nodes,
        WORDS=words,
        WORDS_PAD=next_power_of_two(words),
        EACH=each,
        CHUNK=128,
        num_warps=4,
        num_stages=1,
    )
    return tree


def tree_build(
    draft_logits: torch.Tensor,
    root_tokens: torch.Tensor,
    budget: int,
    top_k: int | None = None,
    spine: bool = False,
    temperature: float = 1.0,
) -> DraftTree:
    """As the public function of this name, arguments unchecked; four launches, no synchronisation."""
    k = min(budget, draft_logits.shape[2], top_k or budget)
    log_probs, top_tokens = top_log_probs(draft_logits, k, temperature)
    return select(log_probs, top_tokens, root_tokens, budget, spine)
