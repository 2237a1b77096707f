"""The text that the tiny pair learns from, made here: worked arithmetic, sorting, service logs, small
programs and notes in free wording.

Every example is a prompt and an answer. Answers have certain places (a carry, the rest of a keyword) and branching ones
(which of three words, which number comes next), as real text has. All of it follows from the seed.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ddtree_kernels.tiny.notes import wording

PLACES = ("ones", "tens", "hundreds", "thousands")
SERVICES = ("billing", "search", "orders", "mailer", "index", "gateway", "ledger", "images")
NODES = ("node-1", "node-2", "node-3", "node-4")
PATHS = ("/cart", "/items", "/login", "/orders", "/search", "/users", "/invoices")
THINGS = ("orders", "items", "users", "prices", "rows", "files", "events", "tokens")
FIELDS = ("size", "price", "count", "weight", "age", "total")
READERS = ("the morning shift", "the owners", "support", "the auditors")
TESTS = ("open", "paid", "valid", "active", "new", "ready")
HELD_BACK_ONE_IN = 16


@dataclass(frozen=True)
class Example:
    """One document: what is asked and what follows."""

    family: str
    prompt: str
    answer: str

    @property
    def held_back(self) -> bool:
        """Whether this prompt is never trained on: one in sixteen, by its own checksum."""
        return zlib.crc32(self.prompt.encode()) % HELD_BACK_ONE_IN == 0


def addition(rng: random.Random) -> Example:
    """Adds two numbers column by column."""
    digits = rng.choice((2, 3, 3))
    a, b = (rng.randrange(10 ** (digits - 1), 10**digits) for _ in range(2))
    steps, carry = [], 0
    for place in range(digits):
        x, y = (number // 10**place % 10 for number in (a, b))
        total = x + y + carry
        plus = f" + {carry}" if carry else ""
        carried = f", write {total % 10} carry 1" if total >= 10 else ""
        steps.append(f"{PLACES[place]}: {x} + {y}{plus} = {total}{carried}")
        carry = total // 10
    ask = rng.choice(("Add {a} and {b}.", "What is {a} + {b}?", "{a} + {b}, step by step."))
    end = rng.choice(("So {a} + {b} = {c}.", "The sum is {c}.", "Result: {c}."))
    answer = "\n".join([*steps, end.format(a=a, b=b, c=a + b)])
    return Example("addition", ask.format(a=a, b=b), answer)


def multiplication(rng: random.Random) -> Example:
    """Multiplies a number by one digit, part by part."""
    a, b = rng.randrange(12, 1000), rng.randrange(2, 10)
    parts = [a // 10**place % 10 * 10**place for place in reversed(range(len(str(a)))) if a // 10**place % 10]
    steps = [f"{part} x {b} = {part * b}" for part in parts]
    running, sums = parts[0] * b, []
    for part in parts[1:]:
        sums.append(f"{running} + {part * b} = {running + part * b}")
        running += part * b
    ask = rng.choice(("Multiply {a} by {b}.", "What is {a} x {b}?", "{a} x {b}, step by step."))
    end = rng.choice(("So {a} x {b} = {c}.", "The product is {c}.", "Result: {c}."))
    answer = "\n".join([*steps, *sums, end.format(a=a, b=b, c=a * b)])
    return Example("multiplication", ask.format(a=a, b=b), answer)


def sorting(rng: random.Random) -> Example:
    """Sorts a few numbers by taking the smallest again and again."""
    left = rng.sample(range(1, 100), rng.randrange(4, 7))
    ask = rng.choice(("Sort {n}.", "Put these in order: {n}.", "Sort from small to large: {n}."))
    prompt, taken, steps = ask.format(n=" ".join(map(str, left))), [], []
    while left:
        least = min(left)
        left.remove(least)
        taken.append(str(least))
        rest = f"left {' '.join(map(str, left))}" if left else "none left"
        steps.append(f"smallest {least}, {rest}")
    return Example("sorting", prompt, "\n".join([*steps, f"Sorted: {' '.join(taken)}."]))


def log(rng: random.Random) -> Example:
    """A service's log: a clock that goes on, requests that start and end, now and then a fault and its retry."""
    service, node, lines = rng.choice(SERVICES), rng.choice(NODES), rng.randrange(5, 9)
    clock, request = rng.randrange(86_000), rng.randrange(100, 9000)
    written: list[str] = []

    def write(level: str, message: str, wait: int) -> None:
        nonlocal clock
        clock += wait
        at = f"{clock // 3600 % 24:02}:{clock // 60 % 60:02}:{clock % 60:02}"
        written.append(f"{at} {level} {service} {message}")

    write("INFO", f"starting on {node}", 0)
    write(
        "INFO", rng.choice(("listening on port 8080", "listening on port 9000", "ready to serve")), rng.randrange(1, 4)
    )
    while len(written) < lines:
        request += 1
        path = rng.choice(PATHS)
        write("INFO", f"request {request} GET {path} started", rng.randrange(1, 5))
        fate = rng.random()
        if fate < 0.6:
            write("INFO", f"request {request} GET {path} done in {rng.randrange(2, 10) * 10} ms", rng.randrange(0, 2))
        elif fate < 0.8:
            write("WARN", f"request {request} GET {path} slow: {rng.randrange(2, 10) * 100} ms", rng.randrange(1, 2))
        else:
            why = rng.choice(("connection refused", "timeout after 5 s", "no such row"))
            write("ERROR", f"request {request} GET {path} failed: {why}", rng.randrange(1, 3))
            write("INFO", f"request {request} GET {path} retried, done", rng.randrange(1, 3))
    write("INFO", f"stopping on {node}, {request % 1000} requests served", rng.randrange(2, 5))
    first = f"Log of {service} on {node} from {written[0][:8]}, request {request - len(written) // 3}:"
    return Example("log", first, "\n".join(written))


def _total(rng: random.Random, things: str, field: str, test: str) -> tuple[str, str]:
    item = things.removesuffix("s")
    lines = [f"def {field}_of_{test}_{things}({things}):", "    total = 0", f"    for {item} in {things}:"]
    lines += [f"        if {item}.{test}:", f"            total += {item}.{field}", "    return total"]
    return f"total {field} of the {test} {things}", "\n".join(lines)


def _largest(rng: random.Random, things: str, field: str, test: str) -> tuple[str, str]:
    item = things.removesuffix("s")
    lines = [f"def largest_{field}({things}):", "    best = None", f"    for {item} in {things}:"]
    lines += [
        f"        if best is None or {item}.{field} > best.{field}:",
        f"            best = {item}",
        "    return best",
    ]
    return f"{item} with the largest {field}", "\n".join(lines)


def _select(rng: random.Random, things: str, field: str, test: str) -> tuple[str, str]:
    item, limit = things.removesuffix("s"), rng.randrange(2, 100)
    head = f"def {test}_{things}_above({things}, limit={limit}):"
    if rng.random() < 0.5:
        body = f"    return [{item} for {item} in {things} if {item}.{test} and {item}.{field} > limit]"
    else:
        body = (
            f"    found = []\n    for {item} in {things}:\n        if {item}.{test} and {item}.{field} > limit:\n"
            f"            found.append({item})\n    return found"
        )
    return f"the {test} {things} with a {field} above {limit}", f"{head}\n{body}"


def _group(rng: random.Random, things: str, field: str, test: str) -> tuple[str, str]:
    item = things.removesuffix("s")
    lines = [f"def {things}_by_{field}({things}):", "    groups = {}", f"    for {item} in {things}:"]
    lines += [f"        groups.setdefault({item}.{field}, []).append({item})", "    return groups"]
    return f"group the {things} by {field}", "\n".join(lines)


def program(rng: random.Random) -> Example:
    """A small Python function from a sentence that says what it does."""
    make = rng.choice((_total, _largest, _select, _group))
    what, code = make(rng, rng.choice(THINGS), rng.choice(FIELDS), rng.choice(TESTS))
    ask = rng.choice(("Write a function: {w}.", "Python code for this: {w}.", "# {w}"))
    return Example("program", ask.format(w=what), code)


def note(rng: random.Random) -> Example:
    """A note about what happened to a service, in free wording."""
    service, reader = rng.choice(SERVICES), rng.choice(READERS)
    ask = rng.choice(
        ("Note on {s} for {r}, no. {n}:", "Tell {r} what happened to {s} (case {n}).", "{s}, case {n}, for {r}:")
    )
    return Example("note", ask.format(s=service, r=reader, n=rng.randrange(1, 60)), wording(rng, service, reader))


FAMILIES: dict[str, Callable[[random.Random], Example]] = {
    "addition": addition,
    "multiplication": multiplication,
    "sorting": sorting,
    "log": log,
    "program": program,
    "note": note,
}


def examples(seed: str, families: tuple[str, ...] = tuple(FAMILIES), held_back: bool = False) -> Iterator[Example]:
    """Endless examples in the order that the seed fixes: those to train on, or those held back from training."""
    rng = random.Random(seed)
    while True:
        example = FAMILIES[rng.choice(families)](rng)
        if example.held_back == held_back:
            yield example


def as_text(example: Example, chat: bool) -> tuple[str, str]:
    """Prompt and answer with their special tokens, as a completion or as ChatML."""
    if chat:
        prompt = f"<|im_start|>user\n{example.prompt}<|im_end|>\n<|im_start|>assistant\n"
        return prompt, f"{example.answer}<|im_end|>\n"
    return f"{example.prompt}\n", f"{example.answer}<|endoftext|>"
