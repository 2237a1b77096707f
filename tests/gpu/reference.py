"""What the pair accepts on the plan's prompts without SGLang: `python3 tests/gpu/reference.py [--dtype float32]`.

A server's accept lengths say nothing of whether its drafts are right unless the same prompts give the same elsewhere.
The text is the target's own greedy one; trees are the plug-in's, spine first. On a CPU, with torch; a minute or two.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from ddtree_kernels.models import Cache, Pair, load_pair  # noqa: E402
from ddtree_kernels.sglang_plugin import ranked, tree, walk  # noqa: E402
from ddtree_kernels.tiny.measure import greedy  # noqa: E402
from tests.gpu.plugin_plan import prompts  # noqa: E402
from tests.gpu.speed import TOKENS  # noqa: E402

CHAIN, BUDGETS = 0, (15, 31, 63)


def passes(pair: Pair, prompt: Sequence[int], most: int) -> tuple[int, dict[int, int]]:
    """(tokens of the answer, verify passes by budget; CHAIN is linear drafting)."""
    target, draft = pair.target, pair.draft
    assert draft is not None
    text, features = greedy(target, list(prompt), most)
    cache = Cache(draft.config.shape, len(text) + draft.block_size, draft.device, draft.dtype)
    draft.extend(features, cache, 0)
    room, memory = draft.block_size - 1, dict[int, torch.Tensor]()

    def logits(place: int) -> torch.Tensor:
        if place not in memory:
            memory[place] = draft.draft(torch.tensor([text[place]]), cache, place)
            draft.extend(features[place : place + draft.block_size], cache, place)  # the block overwrote them
        return memory[place]

    def accepted(place: int, budget: int) -> int:
        found = ranked.rank(logits(place), max(1, budget))
        rows, ids = found.to_lists(1)
        grown = tree.grow(text[place], rows[0], ids[0], budget or room)
        after = [*text[place + 1 : place + 2 + room], *[-1] * room]
        return len(walk.tree_path(grown, [after[depth] for depth in grown.depths]))

    counts = {}
    for budget in (CHAIN, *BUDGETS):
        place, counts[budget] = len(prompt), 0
        while place < len(text) - 1:
            place, counts[budget] = place + accepted(place, budget), counts[budget] + 1
    return len(text) - len(prompt), counts


def main(argv: Sequence[str]) -> int:
    """Prints accept lengths by budget, and of each prompt its tokens and passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", type=Path, default=ROOT / "kernels/ddtree_kernels/tiny/pair")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--compared", action="store_true", help="the prompts of `tokens` instead of the timed ones")
    parser.add_argument("--ignore-eos", action="store_true", help="go on behind stop tokens")
    parser.add_argument("--first", type=int, help="so many prompts only")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of an answer, at most")
    args = parser.parse_args(argv)
    pair = load_pair(args.pair, dtype=getattr(torch, args.dtype))
    if args.ignore_eos:
        pair.target.config = replace(pair.target.config, stop_ids=())
    rows = [passes(pair, prompt, args.tokens) for prompt in prompts(args.pair)[0 if args.compared else 1][: args.first]]
    made = sum(count - 1 for count, _ in rows)
    total = {budget: max(1, sum(counts[budget] for _, counts in rows)) for budget in (CHAIN, *BUDGETS)}
    lengths = {f"tree-{b}" if b else "chain": round(made / total[b], 3) for b in total}
    print(json.dumps({"accept_length": lengths, "prompts": [[count, *counts.values()] for count, counts in rows]}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
