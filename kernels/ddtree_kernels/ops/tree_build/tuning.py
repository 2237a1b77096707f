"""Choices inside tree_build that change its time and never its result; `bench.tune_build` measures them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """How the kernels are launched.

    pdl         chain the launches (ops/pdl.py), where the card can
    chained     most rows for which that is done: with more it took longer
    small       largest vocabulary whose rows are ranked by counting, all tokens against all
    compares    most comparisons for which that is done: rows * vocabulary ** 2
    grow        largest budget whose trees are grown in one launch from there on; larger ones by four launches
    grow_warps  warps of that launch's programs, one a request, for budgets up to 64; 8 above
    many_rows   more rows than this fill the card: fewer programs a row
    split       tokens of one program of the pass over a large vocabulary
    warps       warps of one program of that pass
    bins        bins of the floor's counts
    per_nat     bins in one nat
    """

    pdl: bool = True
    chained: int = 132
    small: int = 1024
    compares: int = 1 << 25
    grow: int = 256
    grow_warps: int = 4
    many_rows: int = 132
    split: int = 4096
    warps: int = 4
    bins: int = 32
    per_nat: int = 4

    def counted(self, rows: int, vocab: int) -> bool:
        """Whether rows of this vocabulary are ranked by counting."""
        return vocab <= self.small and rows * vocab**2 <= self.compares


DEFAULT = Tuning()
