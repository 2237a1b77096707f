"""`python -m ddtree_kernels.bench decode`: tokens a second and accept length of all modes side by side, in Markdown."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Mapping

import torch

from ddtree_kernels.bench.decode_big import big_rows
from ddtree_kernels.bench.decode_run import Tally, engine_of, side_by_side
from ddtree_kernels.bench.decode_stages import WHOLE, stage_us
from ddtree_kernels.decode.engine import Engine
from ddtree_kernels.decode.round import STAGES
from ddtree_kernels.decode.settings import DEFAULT_BUDGET, Settings
from ddtree_kernels.models import Pair, load_pair
from ddtree_kernels.tiny.prompts import UNTRAINED, prompt_set

BUDGETS = (8, 15, 16, 24, 32, 48, 64, 96, 128, 192, 256)
Parts = dict[str, dict[str, float]]
_PARTS = (*STAGES, "gap")
_HEAD = (
    "mode",
    "tok/s",
    "of auto",
    "of linear",
    "accept",
    "round ms",
    *_PARTS,
    "untrained tok/s",
    "of linear",
    "accept",
)


def ways(budgets: tuple[int, ...]) -> dict[str, Settings]:
    """What is compared, autoregressive first."""
    found = {"autoregressive": Settings("autoregressive"), "linear": Settings("linear")}
    found |= {f"ddtree {budget}": Settings("ddtree", budget) for budget in budgets}
    found["shadow-linear"] = Settings("shadow-linear", DEFAULT_BUDGET)
    return found


def _sum(tallies: Mapping[str, Tally], untrained: bool) -> Tally:
    total = Tally()
    for name, tally in tallies.items():
        if (name == UNTRAINED) == untrained:
            total.add(tally)
    return total


def table(found: Mapping[str, Mapping[str, Tally]], parts: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Lines of Markdown. parts: milliseconds by way and part of a round."""
    lines = ["| " + " | ".join(_HEAD) + " |", "|---" * len(_HEAD) + "|"]
    totals = {way: (_sum(of, False), _sum(of, True)) for way, of in found.items()}
    auto, (linear, linear_other) = totals["autoregressive"][0], totals["linear"]
    for way, (trained, other) in totals.items():
        cells = [way, f"{trained.speed:.0f}", f"{trained.speed / auto.speed:.2f}"]
        cells += [f"{trained.speed / linear.speed:.2f}", f"{trained.counts.accept_length or 0:.2f}"]
        cells += [f"{trained.round_ms:.2f}", *(f"{parts[way][part]:.2f}" for part in _PARTS), f"{other.speed:.0f}"]
        cells += [f"{other.speed / linear_other.speed:.2f}", f"{other.counts.accept_length or 0:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def parts_of(
    pair: Pair, settings: Mapping[str, Settings], found: Mapping[str, Mapping[str, Tally]], context: int
) -> Parts:
    """Milliseconds of a round's parts: as they ran on a CPU; on a GPU of graphs of their own, `gap` being what the
    running round takes longer than its graph."""
    out: Parts = {}
    for way, of in found.items():
        total = _sum(of, False)
        if pair.target.device.type == "cpu":
            out[way] = {part: total.stage_ms(part) for part in _PARTS}
        else:
            alone = {name: us / 1000 for name, us in stage_us(pair, settings[way], context).items()}
            out[way] = {**alone, "gap": total.round_ms - alone[WHOLE]}
    return out


def by_family(found: Mapping[str, Mapping[str, Tally]], best: str) -> list[str]:
    """Accept lengths of linear and the best tree by family."""
    lines = [f"| family | linear accept | {best} accept | {best} of linear, tok/s |", "|---|---|---|---|"]
    for family, linear in found["linear"].items():
        tree = found[best][family]
        cells = [
            family, f"{linear.counts.accept_length or 0:.2f}", f"{tree.counts.accept_length or 0:.2f}",
            f"{tree.speed / linear.speed:.2f}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def machine(device: torch.device) -> str:
    """What it ran on."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}, bfloat16, graphs on"
    return f"CPU {platform.machine()}, one thread, seconds of CPU time, torch {torch.__version__}, float32"


def main(argv: list[str]) -> int:
    """0; 1 where an answer differs in float32 or better, since greedy output is the same in every mode."""
    parser = argparse.ArgumentParser(prog="python -m ddtree_kernels.bench decode", description=__doc__)
    parser.add_argument("--model", default="tiny", help="tiny, or a folder with target/ and draft/")
    parser.add_argument("--prompts", type=int, default=6, help="of each family")
    parser.add_argument("--tokens", type=int, default=160, help="most tokens of an answer")
    parser.add_argument("--budgets", type=lambda text: tuple(map(int, text.split(","))), default=BUDGETS)
    args = parser.parse_args(argv)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)
    pair = load_pair(args.model, device=device, dtype=torch.bfloat16 if device.type == "cuda" else torch.float32)
    prompts = {
        family: [pair.tokenizer.encode(text) for text in texts] for family, texts in prompt_set(args.prompts).items()
    }
    context = max(len(prompt) for of in prompts.values() for prompt in of) + args.tokens
    modes = ways(args.budgets)
    engines: dict[str, Engine] = {way: engine_of(pair, settings, context) for way, settings in modes.items()}
    found = side_by_side(engines, prompts, args.tokens)
    best = max((way for way in found if way.startswith("ddtree")), key=lambda way: _sum(found[way], False).speed)
    print(f"{args.model} pair, {machine(device)}")
    print(f"{args.prompts} held-back prompts a family, at most {args.tokens} tokens each; parts in ms a round\n")
    print("\n".join(table(found, parts_of(pair, modes, found, context // 2))), end="\n\n")
    print("\n".join(by_family(found, best)), end="\n\n")
    different = {way: sum(len(t.other) for t in of.values()) for way, of in found.items()}
    shadow = _sum(found["shadow-linear"], False).counts
    print(f"answers that differ from autoregressive: {different}")
    print(f"shadow-linear: {shadow.rounds} rounds, {shadow.longer} in which the tree commits more, "
          f"{shadow.contradictions} contradictions")  # fmt: skip
    if device.type == "cuda":
        print("\n" + "\n".join(big_rows(device)))
    return int(device.type == "cpu" and any(different.values()))
