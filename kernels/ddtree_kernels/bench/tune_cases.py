"""What tune_attention's children do on the GPU: check one variant, time several, or run one once for a profiler."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch

from ddtree_kernels.bench.inputs import random_tree
from ddtree_kernels.bench.timing import graph_us
from ddtree_kernels.ops.tree_attention import launch, reference
from ddtree_kernels.ops.tree_attention.hopper_launch import Variant

bf16, fp16 = torch.bfloat16, torch.float16
TOLERANCE = {bf16: 8e-3, fp16: 2e-3}
PRESENT = "triton"
# names: consumer warpgroups, keys of a tile, whether scores are issued ahead (or plain), lazy rescaling, narrow parts
VARIANTS: dict[str, Variant | None] = {
    PRESENT: None,
    "w2n128": Variant(2, 128, 3, 3),
    "w2n128-lazy": Variant(2, 128, 3, 3, lazy=True),
    "w3n64": Variant(3, 64, 5, 5),
    "w3n64-lazy": Variant(3, 64, 5, 5, lazy=True),
    "w3n64-plain-lazy": Variant(3, 64, 5, 5, overlap=False, lazy=True),
    "w3n128-plain-lazy": Variant(3, 128, 3, 2, overlap=False, lazy=True),
    "w3n64-lazy-narrow": Variant(3, 64, 5, 5, lazy=True, narrow=True),
}
CASES: list[tuple[Any, ...]] = [
    # nodes, heads, key heads, size, contexts, counts, type, splits
    (17, 32, 8, 128, [2048], None, bf16, None),
    (65, 32, 8, 128, [0, 777, 4097], [65, 3, 40], bf16, None),
    (65, 32, 8, 128, [3000], None, bf16, 4),
    (33, 32, 8, 128, [130, 1], None, bf16, None),
    (129, 32, 8, 128, [1000], None, bf16, 3),
    (257, 32, 8, 128, [128, 3001], [257, 100], bf16, None),
    (48, 32, 8, 128, [300], None, bf16, 1),
    (64, 32, 8, 128, [901], None, bf16, 1),
    (1, 32, 8, 128, [1], [0], bf16, None),
    (20, 14, 2, 64, [500, 1], None, fp16, None),
]
SHAPES: list[tuple[int, int, list[int | None]]] = [
    # context, nodes, splits to try (None: the launch's own choice)
    (32768, 17, [None, 8, 16, 33]),
    (32768, 65, [None, 4, 8, 16]),
    (32768, 257, [None, 5, 8, 11]),
    (2048, 17, [None, 4, 8, 16]),
    (2048, 65, [None, 4, 6, 8]),
    (2048, 257, [None, 2]),
    (8192, 65, [None, 8]),
    (131072, 17, [None, 16]),
    (131072, 65, [None, 8, 16]),
    (131072, 257, [None, 11]),
]


def _say(*words: object) -> None:
    print(*words, flush=True)


def _attend(name: str, inputs: tuple[Any, ...], splits: int | None, pdl: bool, with_log: bool = False) -> Any:
    """One call of a variant; inputs: query, keys, values, words, lengths, counts."""
    query, keys, values, words, lengths, counts = inputs
    return launch.tree_attention(
        query, keys, values, words, lengths, counts, None, None, None, None, None, with_log, None, splits=splits,
        variant=VARIANTS[name], pdl=pdl,
    )  # fmt: skip


def _inputs(
    nodes: int, heads: int, kv_heads: int, size: int, contexts: list[int], counts: list[int] | None, dtype: torch.dtype
) -> tuple[Any, ...]:
    """Random inputs; what no request may read is NaN."""
    batch, rows = len(contexts), max(contexts) + nodes + 5
    keys, values = (torch.randn(batch, rows, kv_heads, size, device="cuda").to(dtype) for _ in range(2))
    for n, context in enumerate(contexts):
        end = context + (nodes if counts is None else counts[n])
        keys[n, end:] = values[n, end:] = torch.nan
    query = torch.randn(batch, nodes, heads, size, device="cuda").to(dtype)
    words = torch.stack([random_tree(nodes, seed)[2] for seed in range(batch)]).cuda()
    lengths = torch.tensor(contexts, dtype=torch.int32, device="cuda")
    return query, keys, values, words, lengths, None if counts is None else torch.tensor(counts, device="cuda")


def _error(have: tuple[Any, ...], inputs: tuple[Any, ...]) -> str | None:
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
        inputs = _inputs(*shape)
        _say("case", *case)
        have = _attend(name, inputs, splits, True, with_log=True)
        torch.cuda.synchronize()
        if error := _error(have, inputs):
            sys.exit(f"{case}: {error}")
    inputs = _inputs(65, 32, 8, 128, [3000], None, bf16)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, _ = _attend(name, inputs, 6, True)
    for context in (17, 2999, 1111):
        inputs[4].fill_(context)
        graph.replay()
        first = out.clone()
        if error := _error((first, None), inputs):
            sys.exit(f"graph at context {context}: {error}")
        for _ in range(30):
            graph.replay()
            if not torch.equal(out, first):
                sys.exit(f"graph at context {context}: two replays differ")
    _say("ok")


def floor_us(context: int, nodes: int) -> float:
    """Microseconds below which 32/8 heads of 128 cannot go on an H200, as bench.registry reckons."""
    moved = 2 * (context + nodes) * 8 * 128 * 2 + 2 * nodes * 32 * 128 * 2
    return max(moved / 4.27e6, 4 * 32 * nodes * (context + nodes) * 128 / 989e6)


def time_all(names: list[str]) -> None:
    """One line a measurement: variant, context, nodes, splits, launch overlap, microseconds, times the floor."""
    for context, nodes, tried in SHAPES:
        sets = 8 if context == 2048 else 2  # more than the L2 holds
        inputs = [_inputs(nodes, 32, 8, 128, [context], None, bf16) for _ in range(sets)]
        for name in names:
            pdls = (False, True) if name == PRESENT else (True,)
            for pdl, splits in [(pdl, splits) for pdl in pdls for splits in tried]:
                if name == PRESENT and splits is not None:
                    continue
                us = graph_us([partial(_attend, name, one, splits, pdl) for one in inputs])
                _say(f"time {name} {context} {nodes} {splits} {pdl} {us:.2f} {us / floor_us(context, nodes):.3f}")


def once(name: str, context: int, nodes: int) -> None:
    """Three calls, for a profiler."""
    inputs = _inputs(nodes, 32, 8, 128, [context], None, bf16)
    for _ in range(3):
        _attend(name, inputs, None, True)
    torch.cuda.synchronize()


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "check":
        check(words[0])
    elif what == "time":
        time_all(words)
    else:
        once(words[0], int(words[1]), int(words[2]))
