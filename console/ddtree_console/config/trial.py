"""Run as a program: patterns as JSON on stdin, positions of those that take too long on stdout. See patterns.py.

Strings on which patterns explode: what leads to a repetition, then the repeated part until the line is full, then a
character that fits nothing.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from re import _constants as const  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

REPEATS = (const.MAX_REPEAT, const.MIN_REPEAT)
MANY = 16
"""a repetition bounded by less cannot explode by itself."""
LETTERS = "a0 :/._-(=A\n"
PLAIN = ("a", " ", "0", "a ", "a.", "/a", "Aa1 ")


def sample(tree: Any) -> str:
    """A short text that the parsed pattern fits, about."""
    return "".join(_one(op, arg) for op, arg in tree)


def _one(op: Any, arg: Any) -> str:
    if op is const.LITERAL:
        return chr(arg)
    if op is const.IN or op is const.NOT_LITERAL:
        wanted = parser.SubPattern(parser.State(), [(op, arg)])
        return next((c for c in _candidates(arg) if _fits(wanted, c)), "a")
    if op is const.ANY:
        return "a"
    if op is const.BRANCH:
        return sample(arg[1][0])
    if op is const.SUBPATTERN:
        return sample(arg[3])
    if op in REPEATS:
        times: int = min(max(arg[0], 1), 64)
        return sample(arg[2]) * times
    return ""


def _candidates(arg: Any) -> Iterator[str]:
    for op, value in arg if isinstance(arg, list) else ():
        if op is const.LITERAL:
            yield chr(value)
        elif op is const.RANGE:
            yield chr(value[0])
    yield from LETTERS


def _fits(wanted: Any, char: str) -> bool:
    from re import _compiler  # type: ignore[attr-defined]

    return bool(_compiler.compile(wanted).match(char))


def strings(tree: Any, span: int, lead: str = "") -> Iterator[str]:
    """One string for each repetition without a small bound, nested ones too."""
    for op, arg in tree:
        if op in REPEATS:
            part = sample(arg[2])
            if arg[1] >= MANY and part:
                yield lead + (part * span)[: span - len(lead) - 1] + "\0"
            yield from strings(arg[2], span, lead)
        elif op is const.SUBPATTERN:
            yield from strings(arg[3], span, lead)
        elif op is const.BRANCH:
            for branch in arg[1]:
                yield from strings(branch, span, lead)
        lead = (lead + _one(op, arg))[: span // 2]


def _over(*_: object) -> None:
    raise TimeoutError


def slow(text: str, span: int, limit: float) -> bool:
    """Whether the pattern needs more CPU seconds than that on one of its strings."""
    try:
        pattern = re.compile(text)
        tree = parser.parse(text)
        tried = [(unit * span)[: span - 1] + "\0" for unit in PLAIN]
        for string in (*tried, *strings(tree, span)):
            signal.setitimer(signal.ITIMER_VIRTUAL, limit)
            pattern.search(string)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except re.error:
        return False
    except (TimeoutError, RecursionError, MemoryError):
        return True
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return False


def main() -> None:
    """Reads, tries, prints."""
    signal.signal(signal.SIGVTALRM, _over)
    span, limit = int(sys.argv[1]), float(sys.argv[2])
    json.dump([i for i, text in enumerate(json.load(sys.stdin)) if slow(text, span, limit)], sys.stdout)


if __name__ == "__main__":
    main()
