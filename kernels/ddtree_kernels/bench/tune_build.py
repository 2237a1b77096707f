"""`python -m ddtree_kernels.bench.tune_build [VARIANT...]`: tree_build's variants, checked, timed, profiled.

Each variant is compiled and checked in processes of its own, all at once, so that one that is wrong, crashes or hangs
costs only its own lines. What was found right is then timed here, one after the other, beside torch.topk.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from functools import partial

import torch
import triton

from ddtree_kernels.bench.timing import graph_us
from ddtree_kernels.bench.tune_shapes import (
    LISTED_VARIANTS,
    SETS,
    SMALL_VARIANTS,
    VARIANTS,
    Shape,
    inputs,
    kernel_times,
    shapes,
    shapes_of,
    variants,
    wrong,
)
from ddtree_kernels.ops.tree_build import launch
from ddtree_kernels.ops.tree_build.tuning import Tuning

ROUNDS = 2
"""Each variant is timed this often, in turn with the others; the least of the medians counts."""
ALL = VARIANTS | LISTED_VARIANTS | SMALL_VARIANTS
PARTS = 4
"""Processes that share a variant's checks, every PARTS-th shape each."""


def check(name: str, part: int) -> int:
    """A child's work: prints one line a shape that is wrong; 1 if any was."""
    status = 0
    for shape in shapes_of(name)[part::PARTS]:
        try:
            error = wrong(shape, ALL[name])
        except Exception as raised:  # any failure is this variant's result
            error = f"{type(raised).__name__}: {str(raised).strip().splitlines()[-1:]}"
        if error is not None:
            print(f"{shape.name}: {error}", flush=True)
            status = 1
    return status


def checked(names: list[str], seconds: float) -> list[str]:
    """The variants that are right on all shapes; says what is wrong with the others. One process a variant and part."""
    began = time.monotonic()
    command = [sys.executable, "-m", "ddtree_kernels.bench.tune_build", "--check"]
    running = {
        (name, part): subprocess.Popen(
            [*command, str(part), name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for name in names
        for part in range(min(PARTS, len(shapes_of(name))))
    }
    right = set(names)
    for (name, part), child in running.items():
        try:
            told, _ = child.communicate(timeout=max(1.0, seconds - (time.monotonic() - began)))
        except subprocess.TimeoutExpired:
            child.kill()
            told, _ = child.communicate()
            told += f"\nnot finished after {seconds:.0f} s"
        if child.returncode != 0:
            right.discard(name)
            print(f"{name}, part {part}: WRONG\n  " + "\n  ".join(told.strip().splitlines()[-6:]), flush=True)
    print(f"checked in {time.monotonic() - began:.0f} s; right: {', '.join(sorted(right)) or 'none'}\n", flush=True)
    return [name for name in names if name in right]


def timed(shape: Shape, names: list[str]) -> dict[str, float]:
    """Microseconds of each variant, and of torch.topk where it is a peer; a variant that fails says so."""
    root = torch.zeros(shape.batch, dtype=torch.int64, device="cuda")
    sets = [inputs(shape, seed) for seed in range(SETS if shape.pair else 4 if shape.batch == 1 else 1)]

    def ours(tuning: Tuning) -> float:
        return graph_us([partial(launch.tree_build, x, root, shape.budget, tuning=tuning) for x in sets])

    times: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name in names:
            try:
                times[name] = min(times.get(name, float("inf")), ours(ALL[name]))
            except Exception as raised:  # the others are timed all the same
                print(f"{name}, {shape.name}: {type(raised).__name__}: {raised}", flush=True)
        if shape.batch == 1:
            k = min(shape.budget, shape.vocab)
            peer = graph_us([partial(torch.topk, x, k, dim=-1) for x in sets])
            times["torch.topk"] = min(times.get("torch.topk", float("inf")), peer)
    return times


def main(names: list[str], seconds: float) -> int:
    """1 when a variant was wrong; times of all shapes, then of each kernel as far as the seconds go, go to stdout."""
    began = time.monotonic()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    names = names or list(ALL)
    for name in names:
        print(f"  {name}: {ALL[name]}")
    right = checked(names, 0.7 * seconds)
    print("µs by graph replays", flush=True)
    for shape in shapes():
        times = timed(shape, [name for name in right if name in variants(shape)])
        print(f"{shape.name} | " + ", ".join(f"{name} {time:.1f}" for name, time in times.items()), flush=True)
    print("\nµs of each kernel by the profiler (a chained kernel's time holds its waiting)")
    for shape in shapes():
        for name in [name for name in right if name in variants(shape)]:
            if time.monotonic() - began > seconds:
                print("out of time for more")
                break
            print(f"{shape.name}, {name}: {kernel_times(shape, ALL[name])}", flush=True)
    print(f"{time.monotonic() - began:.0f} s in all")
    return int(len(right) < len(names))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m ddtree_kernels.bench.tune_build", description=__doc__)
    parser.add_argument("variant", nargs="*", help=f"of {', '.join(ALL)}; all by default")
    parser.add_argument("--seconds", type=float, default=50.0, help="for all; checks may take 0.7 of it")
    parser.add_argument("--check", type=int, metavar="PART", help="only check one variant on one part of the shapes")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.variant if name not in ALL]:
        parser.error(f"no such variant: {', '.join(unknown)}")
    if arguments.check is not None:
        sys.exit(check(arguments.variant[0], arguments.check))
    sys.exit(main(arguments.variant, arguments.seconds))
