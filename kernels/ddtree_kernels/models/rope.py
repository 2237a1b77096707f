"""Rotary embedding: cosines and sines of positions, and their use (arXiv 2104.09864; YaRN: arXiv 2309.00071)."""

from __future__ import annotations

import math

import torch

from ddtree_kernels.models.api import Rope


def frequencies(rope: Rope, size: int) -> torch.Tensor:
    """Radians a position, float64 [size / 2], of a head of this size."""
    exponents = torch.arange(0, size, 2, dtype=torch.float64) / size
    plain = rope.theta**-exponents
    if rope.kind == "linear":
        return plain / rope.factor
    if rope.kind != "yarn":
        return plain

    def pair_of(turns: float) -> float:
        """Which pair of numbers turns this often over the original length."""
        return size * math.log(rope.original_length / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low = max(math.floor(pair_of(rope.beta_fast)), 0)
    high = min(math.ceil(pair_of(rope.beta_slow)), size - 1)
    ramp = (torch.arange(size // 2, dtype=torch.float64) - low) / max(high - low, 0.001)
    stretched = ramp.clamp(0, 1)
    return plain / rope.factor * stretched + plain * (1 - stretched)


def turns(
    positions: torch.Tensor, per_position: torch.Tensor, rope: Rope, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [..., n, 1, size] of positions [..., n]; angles in float32, in float64 for float64 models."""
    fine = torch.float64 if dtype == torch.float64 else torch.float32
    angles = positions[..., None].to(fine) * per_position.to(fine)
    angles = torch.cat([angles, angles], dim=-1)[..., None, :]
    return (angles.cos() * rope.attention_factor).to(dtype), (angles.sin() * rope.attention_factor).to(dtype)


def rotate(heads: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Heads [..., n, H, size] turned by their positions; the first half pairs with the second, as Llama and Qwen do."""
    half = heads.shape[-1] // 2
    other = torch.cat([-heads[..., half:], heads[..., :half]], dim=-1)
    return heads * cosines + other * sines
