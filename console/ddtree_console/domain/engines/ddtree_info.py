"""The plug-in's `ddtree` section in server info: what it counted, and in words what that means. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ENOUGH = 200
"""rounds from which a mean is told without saying how few they were."""
NOTHING = 0.005
"""tokens a round below which the tree saves nothing worth a word."""


@dataclass(frozen=True)
class TreeInfo:
    """mode: tree | shadow. Lengths in tokens a round, the bonus counted; None before the first round.

    gained: tokens by which the tree would have been, or was, longer than the chain, in all rounds. wrong: rounds in
    which it was shorter or other than the chain, which must stay 0. block: tokens of a drafted block, 0 for unknown.
    """

    mode: str
    budget: int = 0
    block: int = 0
    rounds: int = 0
    accept_length: float | None = None
    tree_length: float | None = None
    chain_length: float | None = None
    gained: int = 0
    wrong: int = 0

    @property
    def gain(self) -> float:
        """Tokens a round."""
        return self.gained / self.rounds if self.rounds else 0.0


def _number(value: Any) -> float | None:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15
    return float(value) if good else None


def _count(raw: Mapping[str, Any], name: str) -> int:
    return int(_number(raw.get(name)) or 0)


def read(info: Mapping[str, Any]) -> TreeInfo | None:
    """The section in an answer of /server_info, None where there is none that can be read."""
    states = info.get("internal_states")
    holders = [info, *(states if isinstance(states, list) else [])]
    for holder in holders:
        raw = holder.get("ddtree") if isinstance(holder, Mapping) else None
        if isinstance(raw, Mapping) and raw.get("mode") in ("tree", "shadow"):
            return TreeInfo(
                str(raw["mode"]),
                _count(raw, "budget"),
                _count(raw, "block"),
                _count(raw, "rounds"),
                _number(raw.get("accept_length")),
                _number(raw.get("tree_length")),
                _number(raw.get("chain_length")),
                _count(raw, "gained"),
                _count(raw, "shorter_rounds") + _count(raw, "astray_rounds"),
            )
    return None


def summary(found: TreeInfo) -> str:
    """Mode, budget and lengths in one line."""
    words = [found.mode, f"budget {found.budget}"]
    if found.accept_length is not None:
        words.append(f"accept {found.accept_length:.2f}")
    if found.tree_length is not None and found.chain_length is not None:
        words.append(f"tree {found.tree_length:.2f}, chain {found.chain_length:.2f}")
    return " · ".join(words)


def verdict(found: TreeInfo) -> tuple[str, str]:
    """(words, good | bad | warn | dim): what the counters say of the tree."""
    if not found.rounds:
        return "no round yet: send it a request", "dim"
    after = "" if found.rounds >= ENOUGH else f", after only {found.rounds} rounds"
    if found.wrong:
        return f"{found.wrong} rounds were not the chain's or better: that must be 0; do not use the tree", "bad"
    if found.gain < NOTHING and 0 < found.budget < found.block:
        return f"a budget of {found.budget} with blocks of {found.block} is the chain alone: raise it with `e`", "warn"
    if found.mode == "shadow":
        if found.gain < NOTHING:
            return f"the tree would have saved nothing{after}: do not enable it for this load", "dim"
        return f"the tree would have saved {found.gain:.2f} tokens a round{after}; enable with `e`", "good"
    if found.gain < NOTHING:
        return f"the tree saves nothing{after}: linear does the same for less", "dim"
    return f"the tree saves {found.gain:.2f} tokens a round{after}", "good"
