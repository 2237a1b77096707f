"""Compiles what the decode bench will launch, in several processes at once.

One process compiles one kernel after the other, and every budget has its own; what they compile lands in Triton's cache
on disk, where the bench then finds it. Each process takes one job: the name of a way, or `big` and a way.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import torch

from ddtree_kernels.bench.decode_big import CONTEXT, big_pair
from ddtree_kernels.bench.decode_big import ways as big_ways
from ddtree_kernels.bench.decode_run import decode, engine_of
from ddtree_kernels.bench.decode_stages import placed
from ddtree_kernels.bench.decode_ways import prompts_of, settings_of
from ddtree_kernels.models import load_pair

LIMIT = 80
"""Seconds after which a process is ended: the bench then compiles the rest itself."""
BIG = "big "


def jobs(ways: Sequence[str], big: bool) -> list[str]:
    """One for each process."""
    found = list(ways)
    if big:
        found += [f"{BIG}{settings.mode} {settings.budget}" for settings in big_ways()]
    return found


def warm(names: Sequence[str], arguments: Sequence[str], say: Callable[[str], None]) -> None:
    """Runs every job in a process of its own, all at once; failures are said and stop nothing."""
    began = time.monotonic()
    command = [sys.executable, "-m", "ddtree_kernels.bench.decode_warm", *arguments, "--job"]
    running = {
        name: subprocess.Popen([*command, name], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for name in names
    }
    for name, process in running.items():
        try:
            _, err = process.communicate(timeout=max(0.1, began + LIMIT - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            _, err = process.communicate()
            say(f"compiling for {name}: not done after {LIMIT} s")
            continue
        if process.returncode:
            say(f"compiling for {name} failed: {(err.strip().splitlines() or ['no message'])[-1]}")
    say(f"kernels compiled by {len(names)} processes: {time.monotonic() - began:.1f} s")


def run(job: str, model: str, prompts: int, tokens: int) -> None:
    """Launches once whatever this way launches."""
    device = torch.device("cuda")
    with torch.inference_mode():
        if job.startswith(BIG):
            placed(big_pair(device, 2, 1), settings_of(job.removeprefix(BIG)), CONTEXT).round.run()
            return
    pair = load_pair(model, device=device, dtype=torch.bfloat16)
    texts = prompts_of(pair, prompts)
    context = max(len(prompt) for of in texts.values() for prompt in of) + tokens
    engine = engine_of(pair, settings_of(job), context)
    for of in texts.values():
        for prompt in of:
            decode(engine, prompt, 2)


def main() -> int:
    """0, or what the job raised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", default="tiny")
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--job", required=True)
    args = parser.parse_args()
    run(args.job, args.pair, args.prompts, args.tokens)
    torch.cuda.synchronize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
