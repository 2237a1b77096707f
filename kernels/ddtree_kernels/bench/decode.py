"""`python -m ddtree_kernels.bench decode`: tokens a second and accept length of all modes side by side, in Markdown."""

from __future__ import annotations

import argparse
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch

from ddtree_kernels.bench.decode_big import big_rows
from ddtree_kernels.bench.decode_profile import kernels
from ddtree_kernels.bench.decode_run import decode as answer
from ddtree_kernels.bench.decode_run import engine_of, in_graphs, side_by_side
from ddtree_kernels.bench.decode_stages import WHOLE, stage_us
from ddtree_kernels.bench.decode_table import PARTS, Found, by_family, goals, table, total
from ddtree_kernels.bench.decode_warm import jobs, warm
from ddtree_kernels.bench.decode_ways import BUDGETS, prompts_of, ways
from ddtree_kernels.decode.engine import Engine
from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.models import Pair, load_pair
from ddtree_kernels.tiny.prompts import UNTRAINED


class Report:
    """Lines that are printed as they come, and kept in a file where one is named; what fails is told and passed by."""

    def __init__(self, path: Path | None) -> None:
        self._out = path.open("w", encoding="utf-8") if path is not None else None
        self.failures = 0

    def __call__(self, lines: Iterable[str]) -> None:
        """Prints and keeps these."""
        for line in lines:
            print(line, flush=True)
            if self._out is not None:
                print(line, file=self._out, flush=True)

    def attempt(self, what: str, do: Callable[[], None]) -> None:
        """Runs it; an error is told, and the rest goes on."""
        try:
            do()
        except Exception as error:  # any part may fail without its neighbours
            self.failures += 1
            traceback.print_exc()
            self([f"{what} failed: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"])


def machine(device: torch.device) -> str:
    """What it ran on."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}, bfloat16, graphs on"
    return f"CPU {platform.machine()}, one thread, seconds of CPU time, torch {torch.__version__}, float32"


def note(line: str) -> None:
    """Progress, which is no part of the table."""
    print(line, file=sys.stderr, flush=True)


def engines_of(pair: Pair, modes: Mapping[str, Settings], context: int, report: Report) -> dict[str, Engine]:
    """A decoder for each way; a way whose decoder cannot be made is told and left out."""
    found: dict[str, Engine] = {}
    for way, settings in modes.items():

        def make(way: str = way, settings: Settings = settings) -> None:
            began = time.monotonic()
            found[way] = engine_of(pair, settings, context)
            note(f"{way}: ready after {time.monotonic() - began:.1f} s")

        report.attempt(way, make)
    return found


def gpu_parts(pair: Pair, engines: Mapping[str, Engine], prompts: Mapping[str, list[list[int]]], tokens: int,
              found: Found, report: Report) -> dict[str, dict[str, float]]:  # fmt: skip
    """Milliseconds of a round's parts behind real text, each a graph of its own; gap: a round less its graph."""
    trained = {family: of for family, of in prompts.items() if family != UNTRAINED}
    first = next(iter(engines.values()))
    answers = [(of[0], answer(first, of[0], tokens)[0]) for of in trained.values()]
    texts = [[*prompt, *said[: len(said) // 2 + 1]] for prompt, said in answers]
    timed = in_graphs(engines, [prompt for of in trained.values() for prompt in of], tokens)
    parts: dict[str, dict[str, float]] = {}
    for way, engine in engines.items():

        def measure(way: str = way, engine: Engine = engine) -> None:
            of_way = {
                name: us / 1000 for name, us in stage_us(pair, engine.settings, max(map(len, texts)), texts).items()
            }
            whole, inside = of_way.pop(WHOLE), timed[way].graph_ms
            parts[way] = {**of_way, "gap": total(found[way], False).round_ms - inside}
            note(f"{way}: whole round as a graph {whole:.3f} ms, in the running decoder {inside:.3f} ms, "
                 f"gap {parts[way]['gap']:.4f} ms")  # fmt: skip

        report.attempt(f"parts of {way}", measure)
    return parts


def summary(found: Found, report: Report) -> int:
    """What differs from autoregressive, and what the shadow found; how many answers differ."""
    noise = max(total(of, False).noise for of in found.values())
    if noise:
        report([f"slowest and fastest pass of a mode are at most {noise:.1%} apart"])
    different = {way: sum(len(t.other) for t in of.values()) for way, of in found.items()}
    report([f"answers that differ from autoregressive: {different}"])
    for way in (way for way in found if way.startswith("shadow-linear")):
        shadow = total(found[way], False).counts
        report([f"{way}: {shadow.rounds} rounds, {shadow.longer} in which the tree commits more, "
                f"{shadow.contradictions} contradictions"])  # fmt: skip
    return sum(different.values())


def compare(pair: Pair, args: argparse.Namespace, report: Report) -> int:
    """The pair's tables; how many answers differ from autoregressive."""
    prompts = prompts_of(pair, args.prompts)
    context = max(len(prompt) for of in prompts.values() for prompt in of) + args.tokens
    engines = engines_of(pair, ways(args.budgets), context, report)
    found = side_by_side(engines, prompts, args.tokens, args.repeats, note)
    if pair.target.device.type == "cpu":
        sums = {way: total(of, False) for way, of in found.items()}
        parts = {way: {part: one.stage_ms(part) for part in PARTS} for way, one in sums.items()}
    else:
        parts = gpu_parts(pair, engines, prompts, args.tokens, found, report)
    trees = [way for way in found if way.startswith("ddtree")]
    best = max(trees, key=lambda way: total(found[way], False).speed)
    report(["", f"{args.pair} pair, {machine(pair.target.device)}",
            f"{args.prompts} held-back prompts a family, at most {args.tokens} tokens each, median of {args.repeats}; "
            "parts in ms a round", ""])  # fmt: skip
    report(table(found, parts))
    report.attempt("figures by family", lambda: report(["", *by_family(found, best)]))
    report.attempt("the goals", lambda: report(["", *goals(found, parts, best)]))
    different = summary(found, report)
    if args.profile and pair.target.device.type == "cuda":
        texts = [of[0] for of in list(prompts.values())[::2]]
        for way in ("linear", best):

            def profiled(way: str = way) -> None:
                report(["", f"{way}:", "", *kernels(engines[way], texts)])

            report.attempt(f"profile of {way}", profiled)
    return different


def main(argv: list[str]) -> int:
    """0; 1 where a part failed, or an answer differs in float32, since greedy output is the same in every mode."""
    parser = argparse.ArgumentParser(prog="python -m ddtree_kernels.bench decode", description=__doc__)
    parser.add_argument("--pair", default="tiny", metavar="DIR", help="tiny, or a folder with target/ and draft/")
    parser.add_argument("--prompts", type=int, help="of each family; 12 on a GPU, else 4")
    parser.add_argument("--tokens", type=int, default=128, help="most tokens of an answer")
    parser.add_argument("--repeats", type=int, help="of every answer, its median counts; 3 on a GPU, else 1")
    parser.add_argument("--budgets", type=lambda text: tuple(map(int, text.split(","))), default=BUDGETS)
    parser.add_argument(
        "--profile", action="store_true", help="also the kernels of a linear and of the best ddtree round, on a GPU"
    )
    parser.add_argument("--no-big", action="store_true", help="without the Qwen3-8B-shaped pair, on a GPU")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the tables go here too")
    args = parser.parse_args(argv)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device.type == "cuda"
    args.repeats = args.repeats or (3 if cuda else 1)
    args.prompts = args.prompts or (12 if cuda else 4)
    torch.set_num_threads(1)
    report = Report(args.out)
    began = time.monotonic()
    if cuda:
        sizes = ["--pair", args.pair, "--prompts", str(args.prompts), "--tokens", str(args.tokens)]
        warm(jobs(tuple(ways(args.budgets)), not args.no_big), sizes, note)
    different: list[int] = []
    pairs: list[Pair] = []

    def decode() -> None:
        pairs.append(load_pair(args.pair, device=device, dtype=torch.bfloat16 if cuda else torch.float32))
        different.append(compare(pairs[0], args, report))

    report.attempt(f"{args.pair} pair", decode)
    if cuda and not args.no_big:
        report.attempt("Qwen3-8B-shaped pair", lambda: report(big_rows(device)))
    note(f"all of it took {time.monotonic() - began:.0f} s")
    return int(report.failures > 0 or (not cuda and any(different)))
