"""Sentences of rules with values in them: `{name}` is a value, `[... {name} ...]` is left out where it is not known."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PART = re.compile(r"\[([^\[\]]*\{[^\[\]]*)\]")
_NAME = re.compile(r"\{([\w-]+)\}")


def _known(text: str, values: Mapping[str, str]) -> bool:
    return all(values.get(name) for name in _NAME.findall(text))


def fill(text: str, values: Mapping[str, str]) -> str:
    """The sentence; an unknown value outside brackets becomes `?`."""
    text = _PART.sub(lambda m: m.group(1) if _known(m.group(1), values) else "", text)
    return _NAME.sub(lambda m: values.get(m.group(1)) or "?", text).strip()


def complete(text: str, values: Mapping[str, str]) -> bool:
    """Whether every value that the text needs is known."""
    return _known(_PART.sub("", text), values)
