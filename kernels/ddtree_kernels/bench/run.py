"""Verifies, measures, prints a table and writes CSV."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ddtree_kernels.bench.rows import CSV_HEAD, HEAD, Row

Check = Callable[[int], str | None]
Cases = Callable[[], Iterator[Row]]


def measure(names: Iterable[str], checks: dict[str, Check], cases: dict[str, Cases], seed: int, out: Path) -> int:
    """Exit status: 1 when a test was red; such an operation gets no timing.

    Rows go to stdout and to the CSV file, each operation's seconds to stderr.
    """
    red = 0
    print(HEAD)
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(CSV_HEAD)
        for name in names:
            began = time.monotonic()
            wrong = checks[name](seed)
            if wrong is not None:
                print(f"{name}: its test is red, so nothing is timed: {wrong}", file=sys.stderr)
                red = 1
                continue
            for row in cases[name]():
                print(row.table(), flush=True)
                writer.writerow(row.csv())
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return red


def main(names: list[str], out: Path) -> int:
    """Measures the named operations, all by default; 2 for an unknown name or no GPU."""
    try:
        import torch
        import triton
    except ImportError as error:
        print(f"the benchmark needs torch and triton: {error}", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print("the benchmark needs a CUDA GPU", file=sys.stderr)
        return 2
    from ddtree_kernels.bench.registry import CASES
    from ddtree_kernels.bench.timing import copy_bytes_per_us
    from ddtree_kernels.bench.verify import CHECKS

    unknown = [name for name in names if name not in CASES]
    if unknown:
        print(f"no such operation: {', '.join(unknown)}; there are {', '.join(CASES)}", file=sys.stderr)
        return 2
    rate = copy_bytes_per_us() / 1e6
    versions = f"torch {torch.__version__}, triton {triton.__version__}"
    print(f"{torch.cuda.get_device_name()}, {versions}, copy {rate:.2f} TB/s\n")
    return measure(names or list(CASES), CHECKS, CASES, time.time_ns() % 100_000, out)
