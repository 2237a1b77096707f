"""The `history` command: attempts of a slot, newest first."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from ddtree_console.hostside import durable, releases, request_json
from ddtree_console.hostside.roots import Roots


def newest_first(roots: Roots, unit: str, limit: int) -> Iterator[str]:
    """History lines, those that a full disk kept out of history.jsonl first; torn lines are left out."""
    lines: list[str] = []
    for path in (releases.history(roots, unit), releases.history_spill(roots, unit)):
        lines += (durable.read_text(path) or "").split("\n")
    seen: set[str] = set()
    for line in reversed(lines):
        if len(seen) >= limit:
            return
        if line in seen:
            continue
        try:
            whole = isinstance(json.loads(line), dict)
        except ValueError:
            continue
        if whole:
            seen.add(line)
            yield line


def main(roots: Roots, args: list[str]) -> int:
    """A line an attempt."""
    try:
        raw = request_json.read()
        unit, limit = request_json.unit_of(raw), raw.get("limit")
    except ValueError as error:
        return request_json.refuse(2, str(error), "correct the request")
    for line in newest_first(roots, unit, limit if isinstance(limit, int) and limit > 0 else 200):
        sys.stdout.write(line + "\n")
    return 0
