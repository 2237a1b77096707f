"""The draft tree of a batch, as every other operation reads it."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False)
class DraftTree:
    """Trees of one round: node 0 is the root, a parent's index is below its children's, padding is -1.

    With B the budget, N the batch and W = ceil((B + 1) / 64); all on one device:
        tokens        [N, B+1] int64    vocabulary ids; the root's is the bonus token of the round before
        parents       [N, B+1] int32    node index; the root's is -1
        depths        [N, B+1] int32    root 0; the position of a node is start + depth
        log_probs     [N, B+1] float32  of the whole prefix from the root, natural logarithm; root 0
        counts        [N]      int32    nodes with the root: 1 to B+1
        visibility    [N, B+1, W] int64 bit j % 64 of word j // 64: node j is this node or an ancestor; padding 0
        first_child   [N, B+1] int32    the most probable child; -1 = none
        next_sibling  [N, B+1] int32    the next child of the same parent, in order of rank; -1 = none
    """

    tokens: torch.Tensor
    parents: torch.Tensor
    depths: torch.Tensor
    log_probs: torch.Tensor
    counts: torch.Tensor
    visibility: torch.Tensor
    first_child: torch.Tensor
    next_sibling: torch.Tensor

    @property
    def budget(self) -> int:
        """B: the most nodes a tree holds beside its root."""
        return self.tokens.shape[1] - 1


def words_for(nodes: int) -> int:
    """How many int64 words hold one visibility row of this many nodes."""
    return (nodes + 63) // 64
