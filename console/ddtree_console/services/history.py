"""Attempts of a service and pieces of its journal, asked of the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtree_console.services.api import HistoryEntry, JournalLine
from ddtree_console.services.commands import Commands
from ddtree_console.services.journal import line_of
from ddtree_console.services.wire import build


def entry(raw: Mapping[str, Any]) -> HistoryEntry:
    """One line of history.jsonl."""
    wall = raw.get("wall")
    started = float(wall) if isinstance(wall, (int, float)) and not isinstance(wall, bool) else 0.0
    return build(HistoryEntry, raw, started=started, raw=dict(raw))


async def history(commands: Commands, unit: str, limit: int) -> Sequence[HistoryEntry]:
    """Newest first; HostError as Commands.call."""
    return [entry(raw) for raw in await commands.lines("history", {"unit": unit, "limit": limit})]


async def logs(commands: Commands, unit: str, lines: int, invocation: str) -> Sequence[JournalLine]:
    """A piece of the unit's journal, oldest first; HostError as Commands.call."""
    payload = {"unit": unit, "lines": lines, "invocation": invocation or None}
    found = (line_of(raw, i) for i, raw in enumerate(await commands.raw("logs", payload, 60.0)))
    return [line for line in found if line is not None]
