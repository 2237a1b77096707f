"""The best tokens of each drafted position with their log-probabilities. Needs torch."""

from __future__ import annotations

from dataclasses import dataclass

import torch

ROWS = 256
"""rows whose probabilities are held in float32 at a time."""
LOWEST = -1e30


@dataclass(frozen=True, eq=False)
class Ranked:
    """log_probs [rows, K] float32, falling; ids [rows, K] int64; first [rows] int64, exactly the argmax of the logits.

    topk may list equals in another order than argmax does: whoever reads the ids puts `first` at rank 0, and what stood
    there where `first` was found.
    """

    log_probs: torch.Tensor
    ids: torch.Tensor
    first: torch.Tensor

    def to_lists(self, batch: int) -> tuple[list[list[list[float]]], list[list[list[int]]]]:
        """([batch][L][K] log-probabilities, the same of ids, `first` at rank 0), with one copy to the host."""
        swapped = torch.where(self.ids == self.first[:, None], self.ids[:, :1], self.ids)
        swapped[:, 0] = self.first
        both = torch.stack((self.log_probs.view(torch.int32), swapped.to(torch.int32))).cpu()
        shape = (batch, self.ids.shape[0] // batch, self.ids.shape[1])
        return both[0].view(torch.float32).view(shape).tolist(), both[1].view(shape).tolist()


def rank(logits: torch.Tensor, ranks: int) -> Ranked:
    """The `ranks` best of every row of logits [rows, V], probabilities over all of V, in float32.

    The chain must be stock DFLASH's chain, so its tokens are torch.argmax's. A row with a NaN has log-probabilities of
    NaN, which count as the lowest wherever a tree is grown.
    """
    first = logits.argmax(dim=-1)
    if logits.shape[0] <= ROWS:
        values, ids = torch.log_softmax(logits, dim=-1, dtype=torch.float32).topk(ranks, dim=-1)
        return Ranked(values, ids, first)
    parts = [torch.log_softmax(part, dim=-1, dtype=torch.float32).topk(ranks, dim=-1) for part in logits.split(ROWS)]
    return Ranked(torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]), first)
