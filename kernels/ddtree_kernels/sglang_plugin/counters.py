"""What the tree gained, counted round by round; the `ddtree` section of server info. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PHASES = ("between", "draft", "tree", "verify", "walk", "commit", "append")
"""host time of a round: SGLang's own since the last one; launching the draft's pass; launching the tree; launching the
target's pass and waiting for its choices; walk; slots and lengths; the draft's KV of what was committed."""
PARTS = ("draft", "tree", "target")
"""time on the GPU, from one part's last kernel to the next one's, waits for the host included."""


@dataclass
class Counters:
    """A round here is one request's verify pass. Lengths count the bonus, so that a round without a hit has length 1.

    longer, gained: rounds in which the tree accepted more than the chain, and by how many tokens in all. shorter:
    rounds in which it accepted less. astray: rounds in which its tokens did not begin with the chain's. The last two
    must stay 0: the chain is part of the tree. due: a request has ended since the section was last shown.
    """

    mode: str
    budget: int
    block: int
    release: str = ""
    rounds: int = 0
    steps: int = 0
    tree_sum: int = 0
    chain_sum: int = 0
    emitted_sum: int = 0
    longer: int = 0
    gained: int = 0
    shorter: int = 0
    astray: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    due: bool = False
    gpu_steps: int = 0
    gpu: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))

    def see(self, tree: Sequence[int], chain: Sequence[int], appended: int, ended: bool = False) -> None:
        """One request's round: the tokens that each would give, and how many were appended. ended: with the last of
        them the request was finished, so that neither could have given more."""
        if ended:
            tree, chain = tree[:appended], chain[:appended]
        self.rounds += 1
        self.tree_sum += len(tree)
        self.chain_sum += len(chain)
        self.emitted_sum += appended
        gain = len(tree) - len(chain)
        if gain > 0:
            self.longer += 1
            self.gained += gain
        elif gain < 0:
            self.shorter += 1
        if list(tree[: len(chain)]) != list(chain):
            self.astray += 1

    def spent(self, seconds: Mapping[str, float]) -> None:
        """One step of the batch: host seconds by phase."""
        self.steps += 1
        for name, value in seconds.items():
            self.seconds[name] += value

    def measured(self, parts: Mapping[str, float]) -> None:
        """Milliseconds on the GPU of one step; {} of a step that was not measured."""
        self.gpu_steps += bool(parts)
        for name, value in parts.items():
            self.gpu[name] += value

    def section(self) -> dict[str, Any]:
        """Plain data for server info. Lengths are None before the first round; ms are means over steps."""
        mean = 1.0 / self.rounds if self.rounds else None
        return {
            "mode": self.mode,
            "budget": self.budget,
            "block": self.block,
            "release": self.release,
            "rounds": self.rounds,
            "accept_length": None if mean is None else round(self.emitted_sum * mean, 4),
            "tree_length": None if mean is None else round(self.tree_sum * mean, 4),
            "chain_length": None if mean is None else round(self.chain_sum * mean, 4),
            "longer_rounds": self.longer,
            "gained": self.gained,
            "shorter_rounds": self.shorter,
            "astray_rounds": self.astray,
            "steps": self.steps,
            "ms": {name: round(1e3 * s / self.steps, 4) for name, s in self.seconds.items()} if self.steps else {},
            "gpu_ms": {name: round(s / self.gpu_steps, 4) for name, s in self.gpu.items()} if self.gpu_steps else {},
        }

    def line(self) -> str:
        """The section's figures for the log."""
        s = self.section()
        return (
            f"DDTREE {self.mode}: {s['rounds']} rounds, accept length {s['accept_length']} "
            f"(tree {s['tree_length']}, chain {s['chain_length']}), tree longer in {s['longer_rounds']} by "
            f"{s['gained']} tokens, shorter {s['shorter_rounds']}, astray {s['astray_rounds']}, ms a step {s['ms']}"
        )
