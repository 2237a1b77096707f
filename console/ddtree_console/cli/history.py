"""`history`: attempts of a service, newest first: what changed, how far it got, why it ended."""

from __future__ import annotations

import argparse

from ddtree_console.cli import live
from ddtree_console.cli.output import Output, clock, safe, seconds
from ddtree_console.services.api import HistoryEntry
from ddtree_console.services.console import LiveConsole

COLOURS = {"committed": "good", "went_back": "warn", "went_way_back": "warn", "serving_uncommitted": "warn"}


def lines(entry: HistoryEntry) -> list[str]:
    """An attempt: one line, then its cause, reason and changes."""
    head = (
        clock(entry.started),
        entry.what,
        f"{entry.source or 'nothing'} -> {entry.target}",
        entry.profile,
        entry.outcome,
        seconds(entry.seconds),
        f"by {entry.who}" if entry.who else "",
    )
    out = ["  ".join(x for x in head if x)]
    if entry.cause:
        out.append(f"    {entry.furthest + ': ' if entry.furthest else ''}{entry.cause}")
    if entry.reason:
        out.append(f"    reason: {entry.reason}")
    out += [f"    {change}" for change in entry.changed]
    return [safe(x) for x in out]


def main(args: argparse.Namespace, output: Output) -> int:
    """0."""

    async def work(console: LiveConsole) -> int:
        entries = await console.history(args.key, args.limit)
        if output.as_json:
            output.json([dict(entry.raw) for entry in entries])
            return 0
        for entry in entries:
            head, *rest = lines(entry)
            output.line(output.paint(head, COLOURS.get(entry.outcome, "bad")))
            for text in rest:
                output.line(text)
        if not entries:
            output.note(f"{args.key}: no attempt yet")
        return 0

    return live.with_console(args, args.key, work)
