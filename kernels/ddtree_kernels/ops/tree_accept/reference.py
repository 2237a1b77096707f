"""The specification of tree_accept and linear_accept, in plain torch and loops.

The walk is step 5 of Ringel and Romano (arXiv 2604.12989; `ddtree.py` of liranringel/ddtree): at a node, if the
target's token is a child, go there; else stop, and that token is the bonus. The linear walk is that of Leviathan et al.
(arXiv 2211.17192) for a target that chose its tokens already.
"""

from __future__ import annotations

import torch


def argmax(logits: torch.Tensor) -> torch.Tensor:
    """int64 [...]: the highest logit's token, the lowest of equals; NaN counts as -inf, a row of -inf gives 0."""
    values = torch.where(logits.isnan(), -torch.inf, logits.float())
    is_best = values == values.amax(dim=-1, keepdim=True)
    return is_best.to(torch.uint8).argmax(dim=-1)


def tree_walk(
    tokens: torch.Tensor,
    first_child: torch.Tensor,
    next_sibling: torch.Tensor,
    target: torch.Tensor,
    depth: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Accepted nodes [N, depth+1] int32, counts [N] int32, bonus tokens [N] int64; all other arguments [N, T]."""
    batch = tokens.shape[0]
    nodes = [[-1] * (depth + 1) for _ in range(batch)]
    counts, bonus = [], []
    rows = zip(tokens.tolist(), first_child.tolist(), next_sibling.tolist(), target.tolist(), strict=True)
    for n, (token, child, sibling, wanted) in enumerate(rows):
        at, count = 0, 1
        nodes[n][0] = 0
        while count <= depth:
            step = child[at]
            while step >= 0 and token[step] != wanted[at]:
                step = sibling[step]
            if step < 0:
                break
            at = step
            nodes[n][count] = at
            count += 1
        counts.append(count)
        bonus.append(wanted[at])
    device = tokens.device
    return (
        torch.tensor(nodes, dtype=torch.int32, device=device),
        torch.tensor(counts, dtype=torch.int32, device=device),
        torch.tensor(bonus, dtype=torch.int64, device=device),
    )


def linear_walk(draft: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As tree_walk, of a chain: draft [N, L], target [N, L+1]."""
    depth = draft.shape[1]
    good = (draft == target[:, :depth]).long().cumprod(dim=1)
    counts = 1 + good.sum(dim=1)
    step = torch.arange(depth + 1, device=draft.device)
    nodes = torch.where(step[None, :] < counts[:, None], step[None, :], -1)
    bonus = target.gather(1, counts[:, None] - 1)[:, 0]
    return nodes.int(), counts.int(), bonus.long()
