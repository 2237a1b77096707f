"""Verifies, measures, prints a table and writes CSV."""

from __future__ import annotations

import csv
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ddtree_kernels.bench.rows import CSV_HEAD, HEAD, Row

Check = Callable[[int], str | None]
Cases = Callable[[], Iterator[Row]]


def measure(
    names: Iterable[str], checks: dict[str, Check], cases: dict[str, Cases], seed: int, out: Path, machine: str
) -> int:
    """Exit status: 1 when a test was red; such an operation gets no timing. What fails stops only its own operation.

    Rows go to stdout and to the CSV file, each operation's seconds to stderr.
    """
    red = 0
    print(HEAD)
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(CSV_HEAD)
        for name in names:
            began = time.monotonic()
            try:
                wrong = checks[name](seed)
            except Exception as raised:  # a test that cannot run is red
                wrong = f"{type(raised).__name__}: {raised}"
            if wrong is not None:
                print(f"{name}: its test is red, so nothing is timed: {wrong}", file=sys.stderr)
                red = 1
                continue
            try:
                for row in cases[name]():
                    print(row.cells(op=True), flush=True)
                    writer.writerow([*row.csv(), machine])
                    file.flush()
            except Exception:  # the others are measured all the same
                traceback.print_exc()
                red = 1
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return red


def _driver() -> str:
    """The driver's version for the machine's line; nothing where it cannot be asked for."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return ""
    return f", driver {told[0]}" if told else ""


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
    machine = f"One {torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}{_driver()}"
    print(f"{machine}, copy {rate:.2f} TB/s\n")
    return measure(names or list(CASES), CHECKS, CASES, time.time_ns() % 100_000, out, machine)
