"""How a server decodes: one of four modes, and the tree's shape. Checked once, before anything is loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

MODES = ("autoregressive", "linear", "ddtree", "shadow-linear")
DEFAULT_BUDGET = 15
"""Nodes beside the root; chosen from the table in README.md, measured on a CPU."""
MAX_BUDGET = 1024


class SettingsError(ValueError):
    """A setting that cannot be; one line that says what was read and what is wanted."""


@dataclass(frozen=True)
class Settings:
    """mode: one of MODES. budget: tree nodes beside the root. spine: the drafter's argmax chain is always in the tree.
    draft_temperature: divides the drafter's logits before the tree is built. top_k: candidates of a position, None =
    all that the budget allows."""

    mode: str = "ddtree"
    budget: int = DEFAULT_BUDGET
    spine: bool = False
    draft_temperature: float = 1.0
    top_k: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise SettingsError(f"mode is {self.mode!r}, not one of {', '.join(MODES)}")
        if not 1 <= self.budget <= MAX_BUDGET:
            raise SettingsError(f"budget is {self.budget}, not 1 to {MAX_BUDGET}")
        if not (math.isfinite(self.draft_temperature) and self.draft_temperature > 0):
            raise SettingsError(f"draft temperature is {self.draft_temperature}, not above 0")
        if self.top_k is not None and self.top_k < 1:
            raise SettingsError(f"top-k is {self.top_k}, not at least 1")

    @property
    def drafts(self) -> bool:
        """Whether a drafter takes part."""
        return self.mode != "autoregressive"

    @property
    def trees(self) -> bool:
        """Whether a tree is verified."""
        return self.mode in ("ddtree", "shadow-linear")

    def fitted(self, block_size: int) -> Settings:
        """The settings for a drafter of this block size; SettingsError where the tree cannot hold what it must.

        Shadow-linear emits what the chain would, so the chain is always in its tree.
        """
        if self.mode != "shadow-linear":
            return self
        if self.budget < block_size - 1:
            raise SettingsError(
                f"shadow-linear needs a budget of at least {block_size - 1}, the drafter's block size - 1, "
                f"so that its tree holds the whole chain; it is {self.budget}"
            )
        return replace(self, spine=True)

    def nodes(self, block_size: int) -> int:
        """Tokens that the target verifies in a round, the root included."""
        if not self.drafts:
            return 1
        return self.budget + 1 if self.trees else block_size
