"""What changed between two profiles (as JSON), in lines for the history. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddtree_console.domain.secrets import is_secret_name, mask

TABLES = {"flags": "flag", "env": "env", "unit": "unit", "speculative": "speculative"}
PLAIN = ("engine", "dialect", "python", "user", "workdir", "model", "args", "command", "must")


def shown(name: str, value: Any) -> str:
    """A value in one word or line; secrets are masked."""
    if value is None:
        return "unset"
    if isinstance(value, Mapping):
        return f"secret {value.get('secret') or value.get('name') or ''}".strip()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return " ".join(shown(name, item) for item in value)
    return "***" if is_secret_name(name) else mask(str(value))


def lines(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Like `flag mem-fraction-static 0.88 -> 0.95`, in a fixed order."""
    found: list[str] = []
    for table, word in TABLES.items():
        a, b = old.get(table) or {}, new.get(table) or {}
        for key in dict.fromkeys([*a, *b]):
            if a.get(key) != b.get(key):
                found.append(f"{word} {key} {shown(key, a.get(key))} -> {shown(key, b.get(key))}")
    for key in PLAIN:
        if (old.get(key) or None) != (new.get(key) or None):
            found.append(f"{key} {shown(key, old.get(key) or None)} -> {shown(key, new.get(key) or None)}")
    if (old.get("verbatim") or "") != (new.get("verbatim") or ""):
        found.append("unit text")
    return found
