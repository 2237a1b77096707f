"""Greedy answers of the tiny pair in every mode against autoregressive; `python -m tests.decode.equality` for all.

In float64 they must be the same. In float32 and bfloat16 another batch shape rounds otherwise, so a token may change
where the target's two best logits are closer than BOUND; every such place is reported with its margin, and a wider
margin is an error. After the first difference the contexts differ, so one answer has one place at most.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context

import torch

from ddtree_kernels.decode.engine import Counts, Engine
from ddtree_kernels.decode.sampling import Sampling
from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.models import load_pair
from ddtree_kernels.models.api import Pair
from ddtree_kernels.models.cache import Cache
from ddtree_kernels.tiny.prompts import prompt_set
from tests.decode.distribution import drawn, p_same, undecided
from tests.decode.pairs import served

MODES: Mapping[str, Settings] = {
    "linear": Settings("linear"),
    "ddtree": Settings("ddtree", 32),
    "spine": Settings("ddtree", 24, spine=True, draft_temperature=1.5),
    "shadow-linear": Settings("shadow-linear", 16),
}
BOUND = {torch.float64: 0.0, torch.float32: 1e-3, torch.bfloat16: 0.25}
"""The widest margin of the two best logits at which an answer may differ."""


@dataclass(frozen=True)
class Difference:
    """One answer that differs: at this token of it, with this margin of the target's two best logits there."""

    mode: str
    prompt: str
    at: int
    margin: float


def answer(decoder: Engine, prompt: Sequence[int], tokens: int, counts: Counts) -> list[int]:
    """Greedy."""
    return [t for part in decoder.generate(prompt, Sampling(tokens, temperature=0), 0, counts) for t in part]


def margin(pair: Pair, tokens: Sequence[int]) -> float:
    """Of the target's two best logits after these tokens, in its own type."""
    target = pair.target
    cache = Cache(target.config.shape, len(tokens), target.device, target.dtype)
    with torch.inference_mode():
        run, at = torch.tensor(tokens, device=target.device), torch.arange(len(tokens), device=target.device)
        hidden, _ = target.forward(run, at, cache, 0, features=False)
        best = target.logits(hidden[-1]).double().topk(2).values
    return float(best[0] - best[1])


def compare(pair: Pair, prompts: Iterable[str], tokens: int) -> tuple[list[Difference], dict[str, Counts]]:
    """Differences from autoregressive, and each mode's counts."""
    encoded = {text: pair.tokenizer.encode(text) for text in prompts}
    context = max(map(len, encoded.values())) + tokens
    plain = served(pair, Settings("autoregressive"), context)
    decoders = {mode: served(pair, settings, context) for mode, settings in MODES.items()}
    counts = {mode: Counts() for mode in MODES}
    found = []
    for text, prompt in encoded.items():
        want = answer(plain, prompt, tokens, Counts())
        for mode, decoder in decoders.items():
            have = answer(decoder, prompt, tokens, counts[mode])
            if have != want:
                at = next(
                    (i for i, (a, b) in enumerate(zip(have, want, strict=False)) if a != b), min(len(have), len(want))
                )
                found.append(Difference(mode, text, at, margin(pair, [*prompt, *want[:at]])))
    return found, counts


def unlike(pair: Pair, samples: int) -> int:
    """How many modes draw unlike autoregressive, p below one in ten thousand, at the places where the target is least
    sure; 1 where it is sure everywhere, so that nothing could be compared."""
    wrong = compared = 0
    for family in ("log", "program", "inventory"):
        prompt = undecided(pair, pair.tokenizer.encode(prompt_set(1)[family][0]))
        plain = drawn(served(pair, Settings("autoregressive"), 512), prompt, 1.0, samples, 1)
        for seed, (mode, settings) in enumerate(MODES.items(), 2):
            try:
                p = p_same(plain, drawn(served(pair, settings, 512), prompt, 1.0, samples, seed))
            except ValueError as error:
                print(f"{family}, {mode}: {error}", flush=True)
                continue
            print(f"{family}, {mode}: {samples} samples, p = {p:.4f}", flush=True)
            wrong, compared = wrong + (p < 1e-4), compared + 1
    return wrong or int(compared == 0)


def check(dtype: torch.dtype, device: str, prompts: Sequence[str], tokens: int) -> tuple[int, list[str]]:
    """How many differences are no close calls, and lines: every difference with its margin, and what was compared."""
    torch.set_num_threads(1)
    began, bound = time.monotonic(), BOUND[dtype]
    found, counts = compare(load_pair("tiny", device=device, dtype=dtype), prompts, tokens)
    lines = [
        f"{dtype}: {one.mode} differs at token {one.at}, margin {one.margin:.6f}: {one.prompt[:60]!r}" for one in found
    ]
    widest = max((one.margin for one in found), default=0.0)
    lengths = ", ".join(f"{mode} {of.accept_length:.2f}" for mode, of in counts.items())
    contradictions = counts["shadow-linear"].contradictions
    lines.append(
        f"{dtype} on {device}: {len(prompts)} prompts x {len(MODES)} modes, {len(found)} answers differ, widest margin "
        f"{widest:.6f} (bound {bound}), {contradictions} contradictions; accept length: {lengths}; "
        f"{time.monotonic() - began:.0f} s"
    )
    return sum(one.margin > bound or bound == 0 for one in found) + contradictions, lines


def main() -> int:
    """0 when every difference is within its bound, no shadow found a contradiction, and all draw alike."""
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(prog="python -m tests.decode.equality", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if cuda else "cpu")
    parser.add_argument("--prompts", type=int, default=20 if cuda else 60, help="of each family")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument(
        "--samples", type=int, default=2000, help="of each mode, compared with autoregressive's; 0: none"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    prompts = [text for texts in prompt_set(args.prompts).values() for text in texts]
    # the kernels have no float64; a process for each type, since compiling them takes longer than running them
    types = [dtype for dtype in BOUND if args.device == "cpu" or dtype != torch.float64]
    wrong = 0
    with ProcessPoolExecutor(len(types) if cuda else 1, get_context("spawn")) as processes:
        jobs = [processes.submit(check, dtype, args.device, prompts, args.tokens) for dtype in types]
        for job in as_completed(jobs):
            more, lines = job.result()
            wrong += more
            print("\n".join(lines), flush=True)
    if args.samples:
        wrong += unlike(load_pair("tiny", device=args.device), args.samples)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
