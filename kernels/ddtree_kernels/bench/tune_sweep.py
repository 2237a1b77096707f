"""Block shapes and splits of tree_attention's Triton kernel, swept on the GPU by tune_attention's children.

`python -m ddtree_kernels.bench.tune_sweep compile I N` checks every N-th block shape from I on, which also fills
Triton's cache; `... time` times those that are named on its standard input, one a line.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ddtree_kernels.bench.timing import graph_us
from ddtree_kernels.bench.tune_cases import Shape, attend, error_of, input_sets, say
from ddtree_kernels.ops.tree_attention import launch
from ddtree_kernels.ops.tree_attention.launch import Blocks

Config = tuple[int, int, int, int]  # rows, keys, warps, stages


@dataclass(frozen=True)
class Sweep:
    """A shape, the blocks to try for it and how often the keys are split; None = once a tile of the cache."""

    shape: Shape
    configs: tuple[Config, ...]
    splits: tuple[int | None, ...]


LARGE: tuple[Config, ...] = (
    (128, 64, 8, 2), (128, 64, 8, 3), (128, 64, 8, 4), (128, 64, 4, 3), (128, 32, 8, 4), (128, 128, 8, 2),
    (64, 64, 4, 2), (64, 64, 4, 3), (64, 64, 4, 4), (64, 32, 4, 4), (64, 128, 4, 2), (64, 128, 8, 2), (64, 64, 8, 3),
    (32, 64, 4, 3), (32, 128, 4, 2),
)  # fmt: skip
TINY = tuple((m, n, warps, 2) for m, n, warps in itertools.product((16, 32, 64), (32, 64, 128), (1, 2, 4, 8)))
SWEEPS = (
    Sweep(Shape(2048, 65), LARGE, (4, 5, 6, 7, 8, 11)),
    Sweep(Shape(2048, 17), LARGE, (8, 10, 11, 12, 14, 16)),
    Sweep(Shape(32768, 17), LARGE, (8, 15, 16, 32)),
    *(Sweep(Shape(length, nodes, 4, 1, 64, 512), TINY, (None, 8)) for length in (150, 400) for nodes in (16, 65)),
)


def _splits(sweep: Sweep, config: Config, splits: int | None) -> int:
    """The number meant: at most one a tile of the cache."""
    tiles = -(-(sweep.shape.rows or sweep.shape.context + sweep.shape.nodes) // config[1]) + 1
    return min(splits or tiles, tiles)


def _run(inputs: tuple[Any, ...], config: Config, splits: int, with_log: bool = False) -> Any:
    query, keys, values, words, lengths, counts = inputs
    return launch.tree_attention(
        query, keys, values, words, lengths, counts, None, None, None, None, None, with_log, None,
        shape=Blocks(*config, resident=1), splits=splits, hopper=False,
    )  # fmt: skip


def check(first: int, step: int) -> None:
    """Says `right SWEEP CONFIG` for every config that gives the right answer, `wrong ...` with the cause for others."""
    torch.manual_seed(0)
    for number, sweep in enumerate(SWEEPS):
        inputs = input_sets(sweep.shape)[0]
        for config in sweep.configs[(first + number) % step :: step]:
            name = f"{number} {' '.join(map(str, config))}"
            try:
                cause = error_of(_run(inputs, config, _splits(sweep, config, sweep.splits[0])), inputs)
            except Exception as error:  # one shape that does not fit must not end the others
                cause = f"{type(error).__name__}: {str(error)[:100]}"
            say("wrong" if cause else "right", name, *([cause] if cause else []))


def time_right(lines: list[str]) -> None:
    """Times what `lines` (as check says them) found right, in every sweep: the present choice, then the best five."""
    right = [tuple(map(int, line.split()[1:])) for line in lines if line.startswith("right ")]
    for number, sweep in enumerate(SWEEPS):
        inputs = input_sets(sweep.shape)
        own = graph_us([partial(attend, "auto", one, None) for one in inputs])
        found: list[tuple[float, Config, int]] = []
        for config in [(m, n, warps, stages) for which, m, n, warps, stages in right if which == number]:
            for splits in dict.fromkeys(_splits(sweep, config, count) for count in sweep.splits):
                found.append((graph_us([partial(_run, one, config, splits) for one in inputs]), config, splits))
            say(f"swept {number} {config}")
        what = f"context {sweep.shape.context} T {sweep.shape.nodes} heads {sweep.shape.heads}"
        say(f"sweep {what}: present {own:.2f} us, {len(found)} tried")
        for us, (m, n, warps, stages), splits in sorted(found)[:5]:
            say(f"best  {us:.2f} us: rows {m} keys {n} warps {warps} stages {stages} splits {splits}")


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    if what == "compile":
        check(int(numbers[0]), int(numbers[1]))
    else:
        time_right(sys.stdin.read().splitlines())
