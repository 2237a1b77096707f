"""`logs`: a piece of a service's journal, or its end as it comes."""

from __future__ import annotations

import argparse
import asyncio
import time

from ddtree_console.cli import live
from ddtree_console.cli.output import Output, safe
from ddtree_console.services.api import JournalLine
from ddtree_console.services.console import LiveConsole

FRAME = 0.2
BATCH = 5000


def show(line: JournalLine, output: Output) -> None:
    """One entry: time and text, or a marker of missing ones."""
    if output.as_json:
        output.json(
            {
                "wall": line.when,
                "unit": line.unit,
                "priority": line.priority,
                "invocation": line.invocation,
                "text": line.text,
                "gap": line.gap,
            }
        )
        return
    if line.gap:
        output.line(output.paint(f"── gap: {safe(line.gap)} ──", "warn"))
        return
    at = time.strftime("%H:%M:%S", time.localtime(line.when)) if line.when else "--:--:--"
    colour = "bad" if line.priority <= 3 else "warn" if line.priority == 4 else ""
    for text in line.text.split("\n"):
        output.line(f"{output.paint(at, 'dim')}  {output.paint(safe(text), colour)}")


def main(args: argparse.Namespace, output: Output) -> int:
    """0; with -f it ends by ctrl+c."""

    async def work(console: LiveConsole) -> int:
        lines = await console.logs(args.key, lines=args.lines, invocation=args.invocation)
        if not args.follow:
            for line in lines:
                show(line, output)
            return 0
        return await _follow(console)

    async def _follow(console: LiveConsole) -> int:
        after, first = -1, True
        while True:
            limit = args.lines if first else BATCH
            found = console.journal(args.key, after, limit)
            if found:
                missed = found[0].seq - after - 1
                if missed and not first:
                    show(JournalLine(0, 0.0, "", "", gap=f"dropped {missed:,} lines"), output)
                for line in found:
                    if not args.invocation or line.gap or line.invocation == args.invocation:
                        show(line, output)
                after, first = found[-1].seq, False
            await asyncio.sleep(FRAME)

    return live.with_console(args, args.key, work)
