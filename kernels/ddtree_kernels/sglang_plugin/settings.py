"""Budget, mode and ranks of a launch: from SGLang's own flags, then from the environment. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MODE, BUDGET, RANKS, BREAK_MASK = "DDTREE_MODE", "DDTREE_BUDGET", "DDTREE_TOPK", "DDTREE_TEST_BREAK_MASK"
MODES = ("tree", "shadow")
BREAKS = ("", "start", "serve")
MOST_RANKS, MOST_NODES, DEFAULT_BUDGET, DEFAULT_BLOCK = 64, 1023, 31, 16


class Refused(ValueError):
    """This launch would be wrong or is not supported; the text is one line, its reason and what to change."""


@dataclass(frozen=True)
class Settings:
    """mode: tree | shadow. budget: nodes besides the root. block: tokens of a drafted block, the root included.

    ranks: tokens of each position that may enter the tree. break_mask: '' | start | serve: a negative control of tests,
    in which every node sees all before it; with `serve` the start-up self-test is passed over.
    """

    mode: str = "tree"
    budget: int = DEFAULT_BUDGET
    block: int = DEFAULT_BLOCK
    ranks: int = MOST_RANKS
    break_mask: str = ""

    @property
    def width(self) -> int:
        """Rows of a verify pass: the nodes with their root."""
        return self.budget + 1

    @property
    def spine(self) -> int:
        """Drafted tokens of a block."""
        return self.block - 1


def _number(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise Refused(f"{name} is {text!r}, not a whole number")
    return int(text)


def read(env: Mapping[str, str], width: int | None, block: int) -> Settings:
    """The settings. width: --speculative-num-draft-tokens, None where it was not given; the environment outranks it.

    Refused names a variable that cannot be used.
    """
    mode = env.get(MODE, "").strip().lower() or "tree"
    if mode not in MODES:
        raise Refused(f"{MODE} is {mode!r}, none of {', '.join(MODES)}")
    broken = env.get(BREAK_MASK, "").strip().lower()
    if broken not in BREAKS:
        raise Refused(f"{BREAK_MASK} is {broken!r}, none of start, serve")
    budget = _number(env, BUDGET)
    if budget is None:
        budget = max(DEFAULT_BUDGET, block - 1) if width is None else width - 1
    given = _number(env, RANKS)
    ranks = min(budget, MOST_RANKS) if given is None else given
    return Settings(mode, budget, block, ranks, broken)
