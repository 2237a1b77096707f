"""What the words of a declaration say: names, choices, deprecation."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from ddtree_console.hostside.inspect_values import UNKNOWN

_INSTEAD = re.compile(r"\b(?:[Uu]se|alias for)\W{1,3}(--[a-z0-9][a-z0-9-]*(?:=[a-z0-9_]+)?)")
HELP_CHARS = 400
"""characters of a help text that are kept."""
TYPES = {"int": "int", "float": "float", "str": "str", "human_readable_int": "size"}
"""a `type=` function -> the kind of what it reads. `bool` is none: argparse reads any text with it."""


def called(node: ast.AST | None) -> str:
    """The last name of what an expression names: `argparse.X` -> X, 'store_true' -> store_true."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def texts(value: Any) -> list[str]:
    """Choices as text; [] where one of them is not known."""
    if isinstance(value, dict):
        value = list(value)
    if not isinstance(value, list) or any(v is UNKNOWN for v in value):
        return []
    return [str(v) for v in value if v is not None]


def deprecation(given: Mapping[str, ast.expr], action: str, text: str, refuses: bool) -> dict[str, Any]:
    """deprecated, instead, refused: from the action and from what the help says of itself."""
    new, error = given.get("new_flag"), given.get("error_message")
    instead = str(new.value) if isinstance(new, ast.Constant) else ""
    told = str(error.value) if isinstance(error, ast.Constant) else ""
    start = text.lower().lstrip("([ ")[:60]
    says = start.startswith(("deprecated", "note: --")) or "is deprecated" in start
    if not (action.startswith("Deprecated") or says):
        return {"deprecated": "", "instead": "", "refused": False}
    if not instead:
        match = _INSTEAD.search(told or text)
        instead = match.group(1) if match else ""
    why = told or text or (f"use {instead}" if instead else "deprecated")
    return {"deprecated": why[:HELP_CHARS], "instead": instead.lstrip("-"), "refused": bool(told) or refuses}
