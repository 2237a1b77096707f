"""The arguments in SGLang's own line `server_args=ServerArgs(...)`: a second source of effective flags. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from ddtree_console.domain.secrets import MASK, is_secret_name

LONGEST = 256 * 1024
_OPEN, _CLOSE = "([{<", ")]}>"


def read(message: str) -> dict[str, Any]:
    """flag with dashes -> value, of those with a plain value; {} for another line. Secrets are masked."""
    start = message.find("ServerArgs(", 0, 64)
    if not message.startswith("server_args=") or start < 0:
        return {}
    found: dict[str, Any] = {}
    for part in _parts(message[start + len("ServerArgs(") : LONGEST]):
        key, equals, text = part.partition("=")
        name = key.strip().replace("_", "-")
        if not equals or not key.strip().isidentifier() or key.strip().startswith("_"):
            continue
        if is_secret_name(name):
            found[name] = MASK if text not in ("None", "''") else None
            continue
        try:
            found[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue  # an object: its text would only look like a difference
    return {k: v for k, v in found.items() if not isinstance(v, dict)}


def _parts(text: str) -> Iterator[str]:
    """`a=1, b='x, y', c=[1, 2])` cut at the commas of its own level; ends at the closing bracket or the text's end."""
    depth, quote, begin, i = 0, "", 0, 0
    while i < len(text):
        char = text[i]
        if quote:
            if char == "\\":
                i += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
            if depth < 0:
                break
        elif char == "," and depth == 0:
            yield text[begin:i].strip()
            begin = i + 1
        i += 1
    else:
        return  # cut off: its last part may be half a value
    yield text[begin:i].strip()
