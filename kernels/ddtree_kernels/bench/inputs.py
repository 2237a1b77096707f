"""Inputs that look like a round's: peaked draft distributions, random trees."""

from __future__ import annotations

import torch

from ddtree_kernels.ops.tree_build.tree import words_for


def draft_logits(batch: int, depth: int, vocab: int, seed: int, device: str = "cuda") -> torch.Tensor:
    """[batch, depth, vocab] bfloat16: noise, and 3000 tokens with Zipf-like probabilities, the best near 0.45."""
    generator = torch.Generator(device=device).manual_seed(seed)
    logits = torch.randn(batch, depth, vocab, device=device, generator=generator)
    some = min(vocab, 3000)
    rank = torch.arange(1, some + 1, device=device).log()
    for n in range(batch):
        for level in range(depth):
            token = torch.randperm(vocab, device=device, generator=generator)[:some]
            noise = 0.3 * torch.randn(some, device=device, generator=generator)
            logits[n, level, token] = 14 - (2.2 - 0.07 * level) * rank + noise
    return logits.bfloat16()


def random_tree(nodes: int, seed: int, near: int = 20) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Parents [T], depths [T] int32 and visibility [T, W] int64 of a tree, each parent among the `near` before."""
    generator = torch.Generator().manual_seed(seed)
    parents, depths, bits = [-1], [0], [1]
    for node in range(1, nodes):
        parent = int(torch.randint(max(0, node - near), node, (), generator=generator))
        parents.append(parent)
        depths.append(depths[parent] + 1)
        bits.append(bits[parent] | 1 << node)
    words = [[_signed(row >> 64 * word) for word in range(words_for(nodes))] for row in bits]
    return (
        torch.tensor(parents, dtype=torch.int32),
        torch.tensor(depths, dtype=torch.int32),
        torch.tensor(words, dtype=torch.int64),
    )


def _signed(word: int) -> int:
    """The low 64 bits as an int64."""
    word &= (1 << 64) - 1
    return word - (1 << 64) if word >> 63 else word
