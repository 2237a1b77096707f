"""What the decode bench compares, and on which prompts."""

from __future__ import annotations

from ddtree_kernels.decode.settings import DEFAULT_BUDGET, Settings
from ddtree_kernels.models.api import Pair
from ddtree_kernels.tiny.prompts import prompt_set

BUDGETS = (8, 15, 24, 32, 47, 63, 64, 127, 256)
"""With its root a tree of 15, 47, 63 or 127 fills whole tiles of the matrix products and of the attention."""
SHADOW = 32
"""The shadow's budget: with block size - 1 its tree would be the chain, and could not find more than that."""


def ways(budgets: tuple[int, ...]) -> dict[str, Settings]:
    """What is compared, by name; autoregressive first."""
    found = {"autoregressive": Settings("autoregressive"), "linear": Settings("linear")}
    found |= {f"ddtree {budget}": Settings("ddtree", budget) for budget in budgets}
    found[f"shadow-linear {SHADOW}"] = Settings("shadow-linear", SHADOW)
    return found


def settings_of(way: str) -> Settings:
    """The settings of one name; a budget may follow the mode."""
    mode, _, budget = way.partition(" ")
    return Settings(mode, int(budget) if budget else DEFAULT_BUDGET)


def prompts_of(pair: Pair, count: int) -> dict[str, list[list[int]]]:
    """Held-back prompts by family, `count` of each."""
    return {family: [pair.tokenizer.encode(text) for text in texts] for family, texts in prompt_set(count).items()}
