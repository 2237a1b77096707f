"""The trees of a batch as the verify pass takes them: grown on the GPU in one launch, or on the CPU. Needs torch."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ddtree_kernels.sglang_plugin import packed
from ddtree_kernels.sglang_plugin.ranked import LOWEST, Ranked
from ddtree_kernels.sglang_plugin.tree import grow


@dataclass(frozen=True, eq=False)
class Grown:
    """On the device, N the width. positions: [batch * N] int64. mask: flat bool, as SGLang's Triton kernel reads it.

    told: [3, batch, N] int64: tokens (the root's is the bonus token), parents, and room for the target's choices, so
    that the host learns of all three in one copy.
    """

    positions: torch.Tensor
    mask: torch.Tensor
    told: torch.Tensor

    @property
    def tokens(self) -> torch.Tensor:
        """[batch * N] int64."""
        return self.told[0].view(-1)


def on_device(ranked: Ranked, bonus: torch.Tensor, prefix: torch.Tensor, total: int, budget: int) -> Grown:
    """In one launch, without the host. bonus: [batch] int64; prefix: [batch] lengths; total: their sum."""
    import triton

    from ddtree_kernels.sglang_plugin.kernel import grow_kernel

    batch, width = bonus.shape[0], budget + 1
    ranks = ranked.ids.shape[1]
    made = Grown(
        torch.empty(batch * width, dtype=torch.int64, device=bonus.device),
        torch.ones(packed.mask_size(total, batch, width), dtype=torch.bool, device=bonus.device),
        torch.empty((3, batch, width), dtype=torch.int64, device=bonus.device),
    )
    grow_kernel[(batch,)](
        ranked.log_probs,
        ranked.ids,
        ranked.first,
        bonus,
        prefix,
        made.positions,
        made.told,
        made.mask.view(torch.uint8),
        batch,
        L=ranked.ids.shape[0] // batch,
        K=ranks,
        N=width,
        NODES=triton.next_power_of_2(width),
        REQUESTS=max(16, triton.next_power_of_2(batch)),
        RANKS=triton.next_power_of_2(ranks + 1),
        LOWEST=LOWEST,
        num_warps=1,
    )
    return made


def warm(depth: int, ranks: int, budget: int, device: torch.device | str) -> None:
    """Compiles the launch, so that no request waits for it."""
    ids = torch.zeros((depth, ranks), dtype=torch.int64, device=device)
    one = torch.zeros(1, dtype=torch.int64, device=device)
    on_device(Ranked(ids.float(), ids, ids[:, 0].contiguous()), one, one, 0, budget)


def on_host(ranked: Ranked, bonus: torch.Tensor, prefix: torch.Tensor, total: int, budget: int) -> Grown:
    """The same by the CPU's heap, with one copy each way; for widths over the kernel's."""
    batch = bonus.shape[0]
    log_probs, ids = ranked.to_lists(batch)
    trees = [grow(0, rows, names, budget) for rows, names in zip(log_probs, ids, strict=True)]
    up = packed.upload(trees, bonus.device)
    told = torch.stack((up.tokens, up.parents, up.tokens))
    told[0, :, 0] = bonus
    positions = (prefix[:, None].to(torch.int64) + up.depths).view(-1)
    return Grown(positions, packed.flat_mask(up.visible, prefix, total), told)
