"""What tune_attention's children do on the GPU: check one variant, time several, or run one once for a profiler."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ddtree_kernels.bench.inputs import random_tree
from ddtree_kernels.bench.timing import graph_us
from ddtree_kernels.ops.tree_attention import launch, reference

bf16, fp16 = torch.bfloat16, torch.float16
TOLERANCE = {bf16: 8e-3, fp16: 2e-3}
# names: whether the Hopper kernel is taken, None: the launch's own choice
VARIANTS: dict[str, bool | None] = {"auto": None, "triton": False, "hopper": True}
CASES: list[tuple[Any, ...]] = [
    # nodes, heads, key heads, size, contexts, counts, type, splits
    (17, 32, 8, 128, [2048], None, bf16, None),
    (65, 32, 8, 128, [0, 777, 4097], [65, 3, 40], bf16, None),
    (65, 32, 8, 128, [3000], None, bf16, 4),
    (33, 32, 8, 128, [130, 1], None, bf16, None),
    (129, 32, 8, 128, [1000], None, bf16, 3),
    (100, 32, 8, 128, [900, 60], None, bf16, 2),
    (257, 32, 8, 128, [128, 3001], [257, 100], bf16, None),
    (48, 32, 8, 128, [300], None, bf16, 1),
    (60, 32, 8, 128, [2000, 64], [60, 9], bf16, None),
    (64, 32, 8, 128, [901], None, bf16, 1),
    (1, 32, 8, 128, [1], [0], bf16, None),
    (20, 14, 2, 64, [500, 1], None, fp16, None),
    (65, 4, 1, 64, [150], None, bf16, None),
    (65, 32, 8, 128, [33000], None, bf16, None),
]
PASSES = 2
LEAST_HOPPER = 1000  # rows times key heads: the Hopper kernel is not timed below


@dataclass(frozen=True)
class Shape:
    """What is timed; rows: of the cache, None = just enough; splits to try, None = the launch's own choice."""

    context: int
    nodes: int
    heads: int = 32
    kv_heads: int = 8
    size: int = 128
    rows: int | None = None
    splits: tuple[int | None, ...] = (None,)


SHAPES: list[Shape] = [
    Shape(32768, 17),
    Shape(32768, 33),
    Shape(32768, 65),
    Shape(32768, 257),
    Shape(2048, 17),
    Shape(2048, 65),
    Shape(2048, 257),
    Shape(8192, 17),
    Shape(8192, 33),
    Shape(8192, 65),
    Shape(8192, 257),
    Shape(16384, 65),
    Shape(131072, 65),
    Shape(131072, 257),
    *(Shape(length, nodes, 4, 1, 64, 512) for length in (150, 400) for nodes in (16, 65)),
]


def say(*words: object) -> None:
    print(*words, flush=True)


def attend(name: str, inputs: tuple[Any, ...], splits: int | None, with_log: bool = False) -> Any:
    """One call of a variant; inputs: query, keys, values, words, lengths, counts."""
    query, keys, values, words, lengths, counts = inputs
    return launch.tree_attention(
        query, keys, values, words, lengths, counts, None, None, None, None, None, with_log, None, splits=splits,
        hopper=VARIANTS[name],
    )  # fmt: skip


def make_inputs(
    nodes: int, heads: int, kv_heads: int, size: int, contexts: list[int], counts: list[int] | None, dtype: torch.dtype,
    rows: int | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """Random inputs for a cache of so many rows, None = a few to spare; what no request may read is NaN."""
    batch, rows = len(contexts), rows or max(contexts) + nodes + 5
    keys, values = (torch.randn(batch, rows, kv_heads, size, device="cuda").to(dtype) for _ in range(2))
    for n, context in enumerate(contexts):
        end = context + (nodes if counts is None else counts[n])
        keys[n, end:] = values[n, end:] = torch.nan
    query = torch.randn(batch, nodes, heads, size, device="cuda").to(dtype)
    words = torch.stack([random_tree(nodes, seed)[2] for seed in range(batch)]).cuda()
    lengths = torch.tensor(contexts, dtype=torch.int32, device="cuda")
    return query, keys, values, words, lengths, None if counts is None else torch.tensor(counts, device="cuda")


def error_of(have: tuple[Any, ...], inputs: tuple[Any, ...]) -> str | None:
    """How an answer differs from the reference in float64, None if it does not."""
    out, log = have
    query, keys, values, words, lengths, counts = inputs
    want, want_log = reference.tree_attention(
        query.double(), keys.double(), values.double(), words, lengths, counts, compute=torch.float64
    )
    off = float((out.double() - want).norm() / want.norm().clamp(min=1e-30))
    if not off < TOLERANCE[query.dtype]:
        bad = ((out.double() - want).abs() > 0.05).nonzero()
        return f"relative error {off:.2e}, {len(bad)} elements, first {bad[:1].tolist()}"
    if log is not None and not torch.allclose(log, want_log, atol=1e-3, rtol=1e-4):
        return f"log-sum-exp off by {float((log - want_log).nan_to_num(9e9).abs().max()):.2e}"
    return None


def _poison_empty() -> None:
    """torch.empty gives NaN from here on: what a kernel leaves unwritten shows."""
    plain = torch.empty

    def rubbish(*size: Any, **options: Any) -> torch.Tensor:
        made = plain(*size, **options)
        return made.fill_(torch.nan) if made.is_floating_point() else made

    torch.empty = rubbish  # type: ignore[assignment]


def check(name: str) -> None:
    """Every case against float64, then a captured graph on changed lengths; raises SystemExit at the first error."""
    _poison_empty()
    torch.manual_seed(0)
    for case in CASES:
        *shape, splits = case
        inputs = make_inputs(*shape)
        say("case", *case)
        have = attend(name, inputs, splits, with_log=True)
        torch.cuda.synchronize()
        if error := error_of(have, inputs):
            sys.exit(f"{case}: {error}")
    inputs = make_inputs(65, 32, 8, 128, [3000], None, bf16)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, _ = attend(name, inputs, 6)
    for context in (17, 2999, 1111):
        inputs[4].fill_(context)
        graph.replay()
        first = out.clone()
        if error := error_of((first, None), inputs):
            sys.exit(f"graph at context {context}: {error}")
        for _ in range(30):
            graph.replay()
            if not torch.equal(out, first):
                sys.exit(f"graph at context {context}: two replays differ")
    say("ok")


def floor_us(shape: Shape) -> float:
    """Microseconds below which an H200 cannot go, as bench.registry reckons."""
    seen = shape.context + shape.nodes
    moved = 2 * seen * shape.kv_heads * shape.size * 2 + 2 * shape.nodes * shape.heads * shape.size * 2
    return max(moved / 4.27e6, 4 * shape.heads * shape.nodes * seen * shape.size / 989e6)


def input_sets(shape: Shape) -> list[tuple[Any, ...]]:
    """Several inputs of a shape, more than the L2 holds but for the smallest shapes."""
    sets = 2 if shape.context > 8192 else 8
    what = (shape.nodes, shape.heads, shape.kv_heads, shape.size, [shape.context], None, bf16, shape.rows)
    return [make_inputs(*what) for _ in range(sets)]


def time_all(names: list[str]) -> None:
    """One line a measurement: variant, context, nodes, heads, splits, microseconds, times the floor; two passes."""
    for shape in SHAPES:
        inputs = input_sets(shape)
        small = shape.context * shape.kv_heads < LEAST_HOPPER
        for _ in range(PASSES):
            for name in [name for name in names if not (small and VARIANTS[name])]:
                for splits in shape.splits:
                    us = graph_us([partial(attend, name, one, splits) for one in inputs])
                    what = f"{name} {shape.context} {shape.nodes} {shape.heads} {splits}"
                    say(f"time {what} {us:.2f} {us / floor_us(shape):.3f}")


def once(name: str, context: int, nodes: int) -> None:
    """Three calls, for a profiler."""
    inputs = make_inputs(nodes, 32, 8, 128, [context], None, bf16)
    for _ in range(3):
        attend(name, inputs, None)
    torch.cuda.synchronize()


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "check":
        check(words[0])
    elif what == "time":
        time_all(words)
    else:
        once(words[0], int(words[1]), int(words[2]))
