"""The best token of each row of logits: one small launch on a GPU for a small vocabulary, else torch's argmax."""

from __future__ import annotations

import torch

from ddtree_kernels.ops.checks import FLOAT_TYPES, next_power_of_two

MOST = 8192
"""Vocabulary up to which one program reads a whole row; torch spreads a longer one over several."""


Copy = tuple[torch.Tensor, torch.Tensor]
"""From where and to where one int64 is copied in the same launch, where there is one."""


def highest(logits: torch.Tensor, root: torch.Tensor | None = None, copy: Copy | None = None) -> torch.Tensor:
    """int64 [n] of logits [n, V]: the highest logit's token, the lowest of equals.

    root: [1] int64, put before them: int64 [1 + n], the tokens of a chain that hangs from it. Not with copy.
    """
    small = logits.shape[-1] <= MOST and logits.stride(-1) == 1
    if logits.is_cuda and logits.dtype in FLOAT_TYPES and small:
        return launch(logits, root, copy)
    if copy is not None:
        copy[1].copy_(copy[0])
    best = logits.argmax(dim=-1)
    return best if root is None else torch.cat([root, best])


def launch(logits: torch.Tensor, root: torch.Tensor | None, copy: Copy | None = None) -> torch.Tensor:
    """As highest, by the kernel; NaN counts as -inf."""
    from ddtree_kernels.decode import triton as kernels

    rows, vocab = logits.shape
    out = torch.empty(rows + (root is not None), dtype=torch.int64, device=logits.device)
    block = next_power_of_two(vocab)
    if root is not None:
        assert copy is None
        copy = root, out
    kernels.highest_kernel[(rows,)](
        logits, out, *(copy or (out, out)), logits.stride(0), vocab,
        BLOCK=block, BEHIND=int(root is not None), COPY=copy is not None, num_warps=min(8, max(1, block // 512)),
    )  # fmt: skip
    return out
