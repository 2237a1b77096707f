"""Flags that the operator set and the server does not have so. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtree_console.domain.secrets import is_secret_name
from ddtree_console.domain.snapshot import Drift

GRAPHS = {"disable-cuda-graph": ("graphs", "piecewise graphs", "draft graphs", "draft piecewise graphs")}
"""flag -> captures that must not be seen in the log when it is set."""


def _plain(value: Any) -> Any:
    """A value as it compares: numbers by value, lists by their members, the rest by text."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, (list, tuple)):
        members = [_plain(member) for member in value]
        return members[0] if len(members) == 1 else tuple(members)
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text)
    except ValueError:
        return text


def _same(asked: Any, effective: Any) -> bool:
    a, b = _plain(asked), _plain(effective)
    if a is False and b is None:
        return True
    return bool(a == b)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return " ".join(_shown(member) for member in value)
    return "unset" if value is None else str(value)


def compare(
    asked: Mapping[str, Any], effective: Mapping[str, Any], phases: Sequence[str], must: Sequence[str] = ()
) -> list[Drift]:
    """Differences among the flags that were set; a flag that the server does not report is none.

    A secret is not compared: servers hide theirs, and neither value may get into an event.
    """
    found: list[Drift] = []
    for flag, value in asked.items():
        if is_secret_name(flag):
            continue
        captured = [name for name in GRAPHS.get(flag, ()) if name in phases] if _plain(value) is True else []
        if flag in effective and not _same(value, effective[flag]):
            found.append(Drift(flag, _shown(value), _shown(effective[flag]), flag in must))
        elif captured:
            found.append(Drift(flag, _shown(value), f"{', '.join(captured)} captured", flag in must))
    return found
