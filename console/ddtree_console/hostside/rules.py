"""The rules of findings on a host: those that travelled with this code, and an operator's own from the plan."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ddtree_console.domain.findings.rules import Rules, rules_from_json

NAME = "rules.json"


def rows(root: Path | None = None) -> list[Any]:
    """What rules.json beside the code holds, [] where there is none. root: the unpacked archive, or the archive."""
    places = [root] if root is not None else [Path(__file__).resolve().parents[2], Path(sys.argv[0] or ".").parent]
    for place in places:
        try:
            raw = json.loads((place / NAME).read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(raw, list):
            return raw
    return []


def load(root: Path | None = None, own: Iterable[Mapping[str, Any]] = ()) -> Rules:
    """Builtin rules, then the operator's: of two with one id the operator's is kept. Never raises."""
    return rules_from_json([*rows(root), *own])
