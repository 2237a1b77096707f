"""`watch`: a line whenever a service's state changes, until ctrl+c; with --json one JSON object a line."""

from __future__ import annotations

import argparse
import asyncio
import time

from ddtree_console.cli import live, view
from ddtree_console.cli.output import Output
from ddtree_console.services.console import LiveConsole

FRAME = 0.2
"""Seconds between two looks: what changes faster is told once."""


def main(args: argparse.Namespace, output: Output) -> int:
    """Never 0 by itself: it ends by ctrl+c (130)."""

    async def work(console: LiveConsole) -> int:
        services = [console.fleet.service(key) for key in live.asked(console, args.scope)]
        told: dict[str, tuple[str, ...]] = {}
        snapshot = console.snapshot()
        while True:
            for service in services:
                row = view.row(snapshot, service)
                state = view.state_of(snapshot, service)
                # Rates move all the time; a line is worth a change of state, release or reason.
                now = (state.word, row[2], state.detail)
                if told.get(service.key) == now:
                    continue
                told[service.key] = now
                if output.as_json:
                    output.json({"wall": round(time.time(), 3), **view.as_json(snapshot, service)})
                else:
                    text = "  ".join(x for x in row if x != "–")
                    output.line(f"{time.strftime('%H:%M:%S')}  {output.paint(text, state.colour)}")
            await asyncio.sleep(FRAME)
            snapshot = await console.changed(snapshot.serial)

    return live.with_console(args, args.scope, work)
