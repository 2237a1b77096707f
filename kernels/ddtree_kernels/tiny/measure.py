"""How good the pair is: `python -m ddtree_kernels.tiny.measure [FOLDER]`. Loss, right answers and accept lengths.

Greedy, float32, one prompt at a time, in plain steps of the public operations: no timing, that is the decode bench's.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional as F

from ddtree_kernels.models import Cache, Pair, load_pair
from ddtree_kernels.models.api import Target
from ddtree_kernels.ops.tree_accept import linear_accept, tree_accept
from ddtree_kernels.ops.tree_build import tree_build
from ddtree_kernels.tiny import path
from ddtree_kernels.tiny.prompts import UNTRAINED, held_back, untrained
from ddtree_kernels.tiny.text import FAMILIES, Example, as_text

LINEAR = 0
BUDGETS = (8, 15, 24, 32, 48, 64, 128)
LIMIT = 320


@dataclass
class Tally:
    """Rounds and the tokens that they committed, root included."""

    rounds: int = 0
    tokens: int = 0

    @property
    def length(self) -> float:
        """Mean accept length: tokens a round."""
        return self.tokens / max(1, self.rounds)


def greedy(target: Target, prompt: list[int], limit: int) -> tuple[list[int], torch.Tensor]:
    """The target's own continuation up to its stop token or the limit, and the features of all of it."""
    cache = Cache(target.config.shape, len(prompt) + limit, target.device, target.dtype)
    tokens, parts, new = list(prompt), [], list(prompt)
    while True:
        start = len(tokens) - len(new)
        at = torch.arange(start, len(tokens), device=target.device)
        hidden, features = target.forward(torch.tensor(new, device=target.device), at, cache, start)
        assert features is not None
        parts.append(features)
        new = [int(target.logits(hidden[-1:])[0].argmax())]
        tokens += new
        if new[0] in target.config.stop_ids or len(tokens) >= len(prompt) + limit:
            return tokens, torch.cat(parts)


def walk(tokens: list[int], prompt: int, accept: Callable[[int], int], tally: Tally) -> None:
    """Decodes a known greedy text in rounds: accept(position of the root) says how many drafted tokens are right."""
    place = prompt
    while place < len(tokens) - 1:
        taken = min(1 + accept(place), len(tokens) - 1 - place)
        tally.rounds += 1
        tally.tokens += taken
        place += taken


def accept_lengths(pair: Pair, prompt: list[int], limit: int, tallies: dict[int, Tally]) -> list[int]:
    """Adds a prompt's rounds to the tallies, by budget, LINEAR for the chain; gives the greedy text.

    Greedy decoding of every mode commits the target's own text, so what a round accepts is known from that text:
    the drafter sees the features before its root, and a node is right when it repeats the text.
    """
    target, draft = pair.target, pair.draft
    assert draft is not None
    tokens, features = greedy(target, prompt, limit)
    cache = Cache(draft.config.shape, len(tokens) + draft.block_size, draft.device, draft.dtype)
    draft.extend(features, cache, 0)
    room, memory = draft.block_size - 1, dict[int, torch.Tensor]()
    device = target.device

    def logits(place: int) -> torch.Tensor:
        """The draft behind the root at this place; the context rows that the block overwrites are written again."""
        if place not in memory:
            memory[place] = draft.draft(torch.tensor([tokens[place]], device=device), cache, place)
            draft.extend(features[place : place + draft.block_size], cache, place)
        return memory[place]

    def after(place: int) -> torch.Tensor:
        """What the target says behind root, first, second ... drafted token; -1 behind the text's end."""
        known = tokens[place + 1 : place + 2 + room]
        return torch.tensor([known + [-1] * (room + 1 - len(known))], device=device)

    def linear(place: int) -> int:
        return int(linear_accept(logits(place).argmax(dim=-1)[None], after(place)).counts[0]) - 1

    def tree(budget: int, place: int) -> int:
        root = torch.tensor([tokens[place]], device=device)
        built = tree_build(logits(place)[None].float(), root, budget=budget)
        said = after(place)[0][built.depths[0].clamp(0, room).long()]
        return int(tree_accept(built, said[None], max_depth=room).counts[0]) - 1

    for budget, tally in tallies.items():
        walk(tokens, len(prompt), linear if budget == LINEAR else partial(tree, budget), tally)
    return tokens


def loss_of(target: Target, pair: Pair, found: list[Example]) -> float:
    """Mean cross-entropy, nats a token, of the true answers behind their prompts."""
    total, count = 0.0, 0
    for i, example in enumerate(found):
        prompt, answer = (pair.tokenizer.encode(text) for text in as_text(example, chat=i % 2 == 1))
        ids = torch.tensor(prompt + answer, device=target.device)
        cache = Cache(target.config.shape, len(ids), target.device, target.dtype)
        hidden, _ = target.forward(ids, torch.arange(len(ids), device=target.device), cache, 0, features=False)
        logits = target.logits(hidden[len(prompt) - 1 : -1]).float()
        total += float(F.cross_entropy(logits, ids[len(prompt) :], reduction="sum"))
        count += len(answer)
    return total / max(1, count)


def last_line_right(example: Example, said: str) -> bool:
    """Whether the last number (or sorted row) that was said is the true one."""
    want, have = (text.strip().rstrip(".").split("\n")[-1] for text in (example.answer, said))
    tail = len(want.split(":")[-1].split()) if example.family == "sorting" else 1
    return have.split()[-tail:] == want.split()[-tail:]


def measure(pair: Pair, count: int) -> dict[str, dict[str, float]]:
    """By family and over all trained ones: loss, share of right results, accept lengths."""
    target = pair.target
    table: dict[str, dict[str, float]] = {}
    overall = {budget: Tally() for budget in (LINEAR, *BUDGETS)}
    for family in (*FAMILIES, UNTRAINED):
        found = untrained(count) if family == UNTRAINED else held_back(family, count)
        tallies = {budget: Tally() for budget in overall}
        right = 0
        for i, example in enumerate(found):
            prompt = pair.tokenizer.encode(as_text(example, chat=i % 2 == 1)[0])
            text = accept_lengths(pair, prompt, LIMIT - len(prompt), tallies)
            right += last_line_right(example, pair.tokenizer.decode(text[len(prompt) :]))
        row: dict[str, float] = {"prompts": len(found), "loss": loss_of(target, pair, found)}
        if family in ("addition", "multiplication", "sorting"):
            row["right"] = right / len(found)
        table[family] = row | lengths(tallies)
        if family != UNTRAINED:
            for budget, tally in tallies.items():
                overall[budget].rounds += tally.rounds
                overall[budget].tokens += tally.tokens
    table["all trained families"] = lengths(overall)
    return table


def lengths(tallies: dict[int, Tally]) -> dict[str, float]:
    """Accept lengths under the names of the table."""
    return {"linear" if budget == LINEAR else f"tree {budget}": tally.length for budget, tally in tallies.items()}


def main(arguments: list[str] | None = None) -> int:
    """The command: a JSON table to standard output."""
    parser = argparse.ArgumentParser(prog="python -m ddtree_kernels.tiny.measure", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=path())
    parser.add_argument("--count", type=int, default=20, help="prompts of each family")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)
    table = measure(load_pair(options.folder, device=options.device), options.count)
    rounded = {family: {name: round(value, 3) for name, value in row.items()} for family, row in table.items()}
    print(json.dumps(rounded, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
