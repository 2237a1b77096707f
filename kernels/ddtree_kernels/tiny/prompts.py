"""What the pair is measured with: prompts held back from training, and a family that it never saw."""

from __future__ import annotations

import random
from itertools import islice

from ddtree_kernels.tiny.text import FAMILIES, Example, as_text, examples

UNTRAINED = "inventory"


def held_back(family: str, count: int, seed: str = "held back") -> list[Example]:
    """The first prompts of a trained family that training skips (one in sixteen, by checksum), none twice."""
    found: dict[str, Example] = {}
    for example in islice(examples(f"{seed} {family}", (family,), held_back=True), 100 * count):
        found.setdefault(example.prompt, example)
        if len(found) == count:
            break
    return list(found.values())


def inventory(rng: random.Random) -> Example:
    """A list of a store's goods as comma-separated lines: a form of text that no training document has."""
    goods = rng.sample(("bolt", "clamp", "fan", "filter", "hinge", "lamp", "pump", "relay", "screw", "valve"), 4)
    lines = [f"{name},{rng.randrange(1, 60)},{rng.choice(('left', 'right'))},{rng.randrange(5, 95)}" for name in goods]
    return Example(UNTRAINED, "name,count,shelf,price\n" + "\n".join(lines[:2]), "\n".join(lines[2:]))


def untrained(count: int, seed: str = "untrained") -> list[Example]:
    """Prompts of the family that was not trained on."""
    rng = random.Random(seed)
    return [inventory(rng) for _ in range(count)]


def prompt_set(count_each: int) -> dict[str, list[str]]:
    """Prompt texts by family, the untrained one last; every second as a chat, the rest as completions."""
    families = {name: held_back(name, count_each) for name in FAMILIES} | {UNTRAINED: untrained(count_each)}
    return {
        name: [as_text(example, chat=i % 2 == 1)[0] for i, example in enumerate(found)]
        for name, found in families.items()
    }
