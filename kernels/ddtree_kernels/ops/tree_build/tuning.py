"""Choices inside tree_build that change its time and never its result; `bench.tune_build` measures them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """How the kernels are launched.

    pdl      chain the launches (ops/pdl.py), where the card can
    lists    rows by many programs: losses counted over all groups, tokens listed by atomics and ranked all against all;
             off: one program a row selects and sorts, one a request counts over coarse groups
    quick    levels of the tree that fit are made in registers
    lean     fewer instructions a token in the pass over the logits
    split    tokens of one program of that pass
    warps    warps of one program of that pass
    bins     bins of the floor's counts
    per_nat  bins in one nat
    """

    pdl: bool = False
    lists: bool = False
    quick: bool = False
    lean: bool = False
    split: int = 4096
    warps: int = 4
    bins: int = 64
    per_nat: int = 4


DEFAULT = Tuning()
