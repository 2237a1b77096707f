"""What tune_build compares: variants, shapes, and the check that each must pass before it is timed."""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from ddtree_kernels.bench.inputs import draft_logits
from ddtree_kernels.bench.tune_pair import places
from ddtree_kernels.ops.tree_build import launch, ranking, reference
from ddtree_kernels.ops.tree_build.tree import DraftTree
from ddtree_kernels.ops.tree_build.tuning import Tuning

NOW = Tuning()
VARIANTS = {"default": NOW}
"""Compared on all shapes."""
LISTED_VARIANTS = {"by levels": dataclasses.replace(NOW, pops=0)}
"""Compared on the large vocabulary, with budgets that can be popped."""
SMALL_VARIANTS = {
    "grown": dataclasses.replace(NOW, pops=0),
    "popped to 256": dataclasses.replace(NOW, pops=256),
    "4 warps": dataclasses.replace(NOW, order_warps=4),
}
"""Compared on the small vocabulary alone."""
LARGE, SMALL, DEPTH = 151936, 512, 15
REPLAYS = 20
SETS = 16
"""Places at which the pair's logits are taken."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """One timed shape: requests, budget, vocabulary, whether the logits are noise alone, or the tiny pair's."""

    name: str
    batch: int
    budget: int
    vocab: int = LARGE
    noise: bool = False
    pair: bool = False


SHAPES = [
    *(Shape(f"tiny pair, B {budget}", 1, budget, SMALL, pair=True) for budget in (32, 64, 127)),
    *(Shape(f"V 512, B {budget}", 1, budget, SMALL) for budget in (64, 256)),
    *(Shape(f"V 512, B {budget}, noise", 1, budget, SMALL, True) for budget in (64, 128)),
    *(Shape(f"V 512, batch {batch}, B 64", batch, 64, SMALL) for batch in (4, 8)),
    *(Shape(f"B {budget}", 1, budget) for budget in (16, 64, 256, 1024)),
    *(Shape(f"B {budget}, noise", 1, budget, noise=True) for budget in (64, 256)),
    Shape("batch 32, B 64", 32, 64),
]


def variants(shape: Shape) -> dict[str, Tuning]:
    """What is compared on this shape."""
    if shape.vocab == SMALL:
        return VARIANTS | SMALL_VARIANTS
    return VARIANTS | (LISTED_VARIANTS if shape.budget <= 256 else {})


@functools.cache
def shapes() -> list[Shape]:
    """All shapes; without the pair's, which is said, where the pair does not run."""
    try:
        places(SETS)
    except Exception as error:  # the rest is compared all the same
        print(f"the tiny pair's logits are left out: {type(error).__name__}: {error}", flush=True)
        return [shape for shape in SHAPES if not shape.pair]
    return SHAPES


def shapes_of(variant: str) -> list[Shape]:
    """The shapes on which a variant is compared."""
    return [shape for shape in shapes() if variant in variants(shape)]


def inputs(shape: Shape, seed: int) -> torch.Tensor:
    """[batch, 15, vocabulary] on the GPU: peaked or noise; over the small vocabulary the pair's, or normal of spread 4
    or 1."""
    if shape.pair:
        return places(SETS)[seed % SETS][None].cuda()
    if shape.vocab == LARGE and not shape.noise:
        return draft_logits(shape.batch, DEPTH, LARGE, seed)
    generator = torch.Generator(device="cuda").manual_seed(seed)
    logits = torch.randn(shape.batch, DEPTH, shape.vocab, device="cuda", generator=generator)
    return (logits if shape.noise else 4 * logits).bfloat16()


def wrong(shape: Shape, tuning: Tuning) -> str | None:
    """What is wrong with this variant on two fresh inputs, None if nothing: eager, then as a graph that is replayed.

    Memory holds rubbish before each eager launch, outputs before each replay; replays follow each other without a wait,
    on inputs that change, so that a kernel that starts before its time shows.
    """
    root = torch.arange(shape.batch, device="cuda")
    sets, wanted = [inputs(shape, 1000 + seed) for seed in range(2)], []
    for x in sets:
        with poisoned():
            full = ranking.rank_tokens(x, shape.budget, min(shape.budget, shape.vocab), prune=False, tuning=tuning)
        log_probs, tokens = reference.top_log_probs(x, min(shape.budget, shape.vocab))
        if not torch.equal(full.tokens.long(), tokens):
            return "top tokens differ from the reference's"
        if not torch.allclose(full.log_probs, log_probs, atol=1e-5, rtol=1e-5):
            return "log-probabilities differ from the reference's"
        wanted.append(fields(reference.select(full.log_probs, full.tokens, root, shape.budget)))
        with poisoned():
            have = fields(launch.tree_build(x, root, shape.budget, tuning=tuning))
        if names := [name for name, one in have.items() if not torch.equal(one, wanted[-1][name])]:
            return f"{', '.join(names)} differ from the reference's"
    return replayed(sets, wanted, lambda x: launch.tree_build(x, root, shape.budget, tuning=tuning))


def replayed(
    sets: list[torch.Tensor], wanted: list[dict[str, torch.Tensor]], build: Callable[[torch.Tensor], DraftTree]
) -> str | None:
    """What is wrong with a captured build on inputs that change between replays."""
    static = sets[0].clone()
    build(static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = fields(build(static))
    same = torch.ones((), dtype=torch.bool, device="cuda")
    for replay in range(REPLAYS):
        static.copy_(sets[replay % 2])
        for one in out.values():
            one.fill_(77)
        graph.replay()
        graph.replay()
        for name, one in out.items():
            same &= (one == wanted[replay % 2][name]).all()
    return None if bool(same) else "replays differ from the reference's"


def fields(tree: DraftTree) -> dict[str, torch.Tensor]:
    """The tree's tensors by name."""
    return {field.name: getattr(tree, field.name) for field in dataclasses.fields(tree)}


@contextmanager
def poisoned() -> Iterator[None]:
    """torch.empty gives rubbish: what a kernel leaves unwritten, or reads before it wrote, shows."""
    plain = torch.empty

    def rubbish(*size: Any, **options: Any) -> torch.Tensor:
        made = plain(*size, **options)
        return made.fill_(float("nan") if made.is_floating_point() else 77_777)

    torch.empty = rubbish
    try:
        yield
    finally:
        torch.empty = plain


def kernel_times(shape: Shape, tuning: Tuning, rounds: int = 10) -> str:
    """Mean microseconds of each kernel in the order of their launch, and their sum."""
    root = torch.zeros(shape.batch, dtype=torch.int64, device="cuda")
    sets = [inputs(shape, seed) for seed in range(2)]
    for x in sets:
        launch.tree_build(x, root, shape.budget, tuning=tuning)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for turn in range(rounds):
            launch.tree_build(sets[turn % 2], root, shape.budget, tuning=tuning)
        torch.cuda.synchronize()
    times: dict[str, float] = defaultdict(float)
    for event in found.events() or ():
        if str(event.device_type).endswith("CUDA"):
            times[event.name.removesuffix("_kernel")] += event.time_range.elapsed_us() / rounds
    return ", ".join(f"{name} {time:.1f}" for name, time in times.items()) + f"; sum {sum(times.values()):.1f}"
