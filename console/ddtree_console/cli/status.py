"""`status`: one line a service; exit 0 when all asked are ready, 5 when a host is out of reach, else 4."""

from __future__ import annotations

import argparse
import asyncio

from ddtree_console.cli import live, view
from ddtree_console.cli.output import Output, table
from ddtree_console.domain.service_state import proved
from ddtree_console.domain.snapshot import FleetSnapshot
from ddtree_console.services.console import LiveConsole
from ddtree_console.services.http import worth_asking

PATIENCE = 15.0
"""Seconds until what is known is printed, settled or not."""


def settled(snapshot: FleetSnapshot, key: str) -> bool:
    """Whether waiting longer would tell nothing more: out of reach, not running, or asked and answered."""
    host, service = view.find(snapshot, key)
    if host.link in ("down", "refused"):
        return True
    if host.link == "connecting" or service.unit is None:
        return False
    if not worth_asking(service):
        return True
    if service.http.status is None:
        return bool(service.http.error)
    return service.http.status != 200 or proved(service)


async def _settle(console: LiveConsole, keys: list[str]) -> FleetSnapshot:
    snapshot = console.snapshot()
    try:
        async with asyncio.timeout(PATIENCE):
            while not all(settled(snapshot, key) for key in keys):
                snapshot = await console.changed(snapshot.serial)
    except TimeoutError:
        snapshot = console.snapshot()
    return snapshot


def main(args: argparse.Namespace, output: Output) -> int:
    """The exit code."""

    async def work(console: LiveConsole) -> int:
        keys = live.asked(console, args.scope)
        snapshot = await _settle(console, keys)
        services = [console.fleet.service(key) for key in keys]
        states = [view.state_of(snapshot, s) for s in services]
        if output.as_json:
            output.json(
                {
                    "ok": all(map(view.ready, states)),
                    "services": [view.as_json(snapshot, s) for s in services],
                    "hosts": [{"host": h.name, "link": h.link, "error": h.error} for h in snapshot.hosts],
                }
            )
        else:
            for text, state in zip(table([view.row(snapshot, s) for s in services]), states, strict=True):
                output.line(output.paint(text.rstrip(), state.colour))
        if all(map(view.ready, states)):
            return 0
        names = {key.partition("/")[0] for key in keys}
        lost = any(h.link in ("down", "refused", "connecting") for h in snapshot.hosts if h.name in names)
        return 5 if lost else 4

    return live.with_console(args, args.scope, work)
