"""Choices inside tree_build that change its time and never its result; `bench.tune_build` measures them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

MAX_BUDGET = 1024


@dataclass(frozen=True)
class Tuning:
    """How the kernels are launched.

    pdl         chain the launches (ops/pdl.py), where the card can
    small       largest vocabulary whose rows are ranked by counting, all tokens against all
    compares    most comparisons for which that is done: rows * vocabulary ** 2
    order_each  tokens that one program of that ranks
    order_warps its warps
    pops        largest budget whose trees are popped node by node in one launch, up to 256; none with a spine, or too
                deep for a pop's codes
    grow        largest budget whose other trees are grown in one launch from there on; larger ones by four launches
    grow_warps  warps of that launch's programs, one a request, for budgets up to 64; 8 above
    many_rows   more rows than this fill the card: fewer programs a row
    split       tokens of one program of the pass over a large vocabulary
    warps       warps of one program of that pass
    bins        bins of the floor's counts
    per_nat     bins in one nat
    fine        budgets above this have twice the bins, each half as wide
    """

    pdl: bool = True
    small: int = 1024
    compares: int = 1 << 25
    order_each: int = 16
    order_warps: int = 2
    pops: int = 64
    grow: int = 64
    grow_warps: int = 4
    many_rows: int = 132
    split: int = 4096
    warps: int = 4
    bins: int = 16
    per_nat: int = 2
    fine: int = 512

    def counted(self, rows: int, vocab: int) -> bool:
        """Whether rows of this vocabulary are ranked by counting."""
        return vocab <= self.small and rows * vocab**2 <= self.compares

    def popped(self, budget: int, depth: int) -> bool:
        """Whether trees of this budget and most depth are popped, where no spine is asked for."""
        return budget <= min(self.pops, 256) and depth + 2 * (budget.bit_length() - 1) <= 31

    def for_budget(self, budget: int) -> Tuning:
        """With the bins of this budget."""
        if budget <= self.fine:
            return self
        return dataclasses.replace(self, bins=2 * self.bins, per_nat=2 * self.per_nat, fine=MAX_BUDGET)


DEFAULT = Tuning()
