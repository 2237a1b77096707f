"""Whether an installed SGLang looks as the table says, by `inspect.signature`; runs nothing. Standard library only."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from typing import Any

from ddtree_kernels.sglang_plugin.releases import TESTED, Call, Release


def found(path: str) -> Any:
    """The object at `module:Name.attribute`; ImportError, AttributeError."""
    module, _, inside = path.partition(":")
    value: Any = importlib.import_module(module)
    for name in inside.split("."):
        value = getattr(value, name)
    return value


def differs(call: Call) -> str:
    """How one row differs from what is installed, '' for not at all."""
    try:
        value = found(call.path)
    except (ImportError, AttributeError) as error:
        return f"{call.path} is not there ({error})"
    try:
        names = tuple(inspect.signature(value).parameters)
    except (TypeError, ValueError) as error:
        return f"{call.path} has no signature ({error})"
    return "" if names == call.parameters else f"{call.path} takes {', '.join(names) or 'nothing'}"


def problems(calls: Iterable[Call]) -> list[str]:
    """Every row that differs."""
    return [text for text in map(differs, calls) if text]


def release_of(version: str) -> Release | None:
    """The table of exactly that release; a local suffix (`+cu130`) is the same release, anything else is not."""
    return TESTED.get(version.partition("+")[0])


def unsupported(version: str) -> str:
    """Why this release is refused, '' for one that was tested."""
    if release_of(version) is not None:
        return ""
    return f"SGLang {version or '(version not known)'} is not among the tested releases ({', '.join(sorted(TESTED))})"
