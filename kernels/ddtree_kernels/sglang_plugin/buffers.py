"""Buffers that budget, batch and context cost, predicted before a launch. Standard library only.

Sources, SGLang 0.5.12: model_executor/cuda_graph_runner.py (`next_token_logits_buffer`, float32) and
layers/attention/triton_backend.py `init_cuda_graph_state` (indices int64, mask uint8: rows x context each; attention
scratch float32: rows x heads x splits x head size).
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Buffers:
    """Bytes. sampling: what a round with temperature holds for a moment beside the logits."""

    logits: int
    indices: int
    mask: int
    scratch: int
    features: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.logits + self.indices + self.mask + self.scratch + self.features


def predict(
    width: int, batch: int, context: int, vocabulary: int, heads: int, head_size: int, splits: int, features: int
) -> Buffers:
    """Of a target's decode graph. features: values that the target captures a token for the draft, two bytes each."""
    rows = width * batch
    return Buffers(
        logits=rows * vocabulary * 4,
        indices=rows * context * 8,
        mask=rows * context,
        scratch=rows * heads * splits * (head_size + 1) * 4,
        features=rows * features * 2,
    )


def line(width: int, batch: int, context: int, found: Buffers) -> str:
    """One line for the log."""
    parts = ", ".join(
        f"{name} {size / MIB:,.0f}"
        for name, size in (
            ("logits", found.logits),
            ("indices", found.indices),
            ("mask", found.mask),
            ("scratch", found.scratch),
            ("features", found.features),
        )
    )
    size = f"{found.total / MIB:,.0f} MiB"
    return f"DDTREE buffers for {width} rows x {batch} requests at context {context}: {size} ({parts})"
