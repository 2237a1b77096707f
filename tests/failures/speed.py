"""Speed of the engine of findings on one core, by CPU time: `python -m tests.failures.speed`."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Sequence

from ddtree_console.cli.explain import explain
from ddtree_console.demo import recordings
from ddtree_console.domain.findings.engine import Findings
from tests.failures.score import cases, rules

LINES = 200_000
WANTED = 50_000
DECODE = (
    "[2026-11-29 14:25:{:02d} TP0] Decode batch, #running-req: {}, #token: {}, token usage: 0.00, accept len: 1.00, "
    "cuda graph: True, gen throughput (token/s): 61.2, #queue-req: 0"
)


def logs() -> dict[str, Sequence[str]]:
    """Kinds of log: lines that are fed over and over."""
    head = "Jan 10 03:{:02d}:{:02d} gpu-host python3[4000]: "
    decode = [DECODE.format(n % 60, n % 7, n) for n in range(2000)]
    unique = [f"[2026-11-29 14:25:{n % 60:02d} TP0] ordinary message {n} about layers of a model" for n in range(2000)]
    return {
        "healthy start": recordings.load("dflash-healthy").text(),
        "start with bars": recordings.load("dflash-healthy-bars").text(),
        "crash with PTX": recordings.load("triton-crash-piecewise").text(),
        "serving": decode,
        "ordinary": unique,
        "journal of both": [head.format(n // 60 % 60, n % 60) + x for n, x in enumerate([*decode, *unique])],
        "nothing but failures": [line.split("]: ", 1)[-1] for case in cases() for line in case.lines],
    }


def main() -> int:
    """0 when every kind but the last, which no log consists of, is above the wanted speed."""
    known, slow = rules(), []
    for name, lines in logs().items():
        rows = [*lines] * (LINES // len(lines) // (1 if len(lines) > 500 else 4) + 1)
        began = time.process_time()
        if name.startswith("journal"):
            explain(io.BytesIO("\n".join(rows).encode()), known)
        else:
            engine = Findings(known)
            for row in rows:
                engine.feed(row)
            engine.end()
            engine.findings()
        took = time.process_time() - began
        speed = len(rows) / took
        print(f"{name:22} {speed:10,.0f} lines/s  {sum(map(len, rows)) / took / 1e6:6.1f} MB/s")
        if speed < WANTED and name != "nothing but failures":
            slow.append(name)
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())
