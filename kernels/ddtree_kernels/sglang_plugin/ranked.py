"""The best tokens of each drafted position with their log-probabilities. Needs torch."""

from __future__ import annotations

from dataclasses import dataclass

import torch

ROWS = 64
"""rows of logits that are held in float32 at a time."""
LOWEST = -1e30


@dataclass(frozen=True, eq=False)
class Ranked:
    """log_probs [rows, K] float32, falling; ids [rows, K] int64. ids[:, 0] is exactly the argmax of the logits."""

    log_probs: torch.Tensor
    ids: torch.Tensor

    def to_lists(self, batch: int) -> tuple[list[list[list[float]]], list[list[list[int]]]]:
        """([batch][L][K] log-probabilities, the same of ids), with one copy to the host."""
        both = torch.stack((self.log_probs.view(torch.int32), self.ids.to(torch.int32))).cpu()
        shape = (batch, self.ids.shape[0] // batch, self.ids.shape[1])
        return both[0].view(torch.float32).view(shape).tolist(), both[1].view(shape).tolist()


def rank(logits: torch.Tensor, ranks: int) -> Ranked:
    """The `ranks` best of every row of logits [rows, V], probabilities over all of V, in float32.

    Rank 0 is torch.argmax's choice among equals, as in stock DFLASH: the chain must be the same chain. NaN counts as
    the lowest.
    """
    best, values, ids = [], [], []
    for part in logits.split(ROWS):
        best.append(part.argmax(dim=-1))
        wide = part.float().nan_to_num(nan=LOWEST, neginf=LOWEST)
        top, which = wide.topk(ranks, dim=-1)
        values.append(top - wide.logsumexp(dim=-1, keepdim=True))
        ids.append(which)
    first, chosen = torch.cat(best), torch.cat(ids)
    # topk may list equals in another order than argmax: what it put first goes where the argmax is
    swapped = torch.where(chosen == first[:, None], chosen[:, :1], chosen)
    swapped[:, 0] = first
    return Ranked(torch.cat(values), swapped)
