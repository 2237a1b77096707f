"""Starting the app on a double, and waiting for it without sleeping."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from ddtree_console.domain.snapshot import FleetSnapshot
from ddtree_console.ui.app import ConsoleApp
from tests.ui.canned import WALL
from tests.ui.doubles import DoubleConsole

WIDE, NORMAL, SMALL, TINY = (160, 48), (120, 40), (80, 24), (20, 5)


def make(snapshot: FleetSnapshot | DoubleConsole | None = None, **options: Any) -> ConsoleApp:
    """An app on canned data; its clock stands still unless a countdown is to end."""
    double = snapshot if isinstance(snapshot, DoubleConsole) else DoubleConsole(snapshot)
    still = options.get("countdown", 3600.0) >= 3600.0
    options.setdefault("clock", (lambda: 5.0) if still else time.monotonic)
    options.setdefault("wall", lambda: WALL)
    options.setdefault("copies", Path("/nonexistent/ddtree-console-tests"))
    return ConsoleApp(lambda: double, **options)


async def settle(pilot: Pilot[Any]) -> None:
    """Until the services are loaded, the newest snapshot is drawn and no worker but the endless ones runs."""
    app = pilot.app
    assert isinstance(app, ConsoleApp)
    until = time.monotonic() + 5.0
    while time.monotonic() < until:
        await pilot.pause()
        if app.services is not None and app.snapshot.serial == app.services.snapshot().serial:
            break
    while busy := [w for w in app.workers if w.group != "services"]:
        # What a worker brings may open a screen whose own workers follow.
        await app.workers.wait_for_complete(busy)
        await pilot.pause()
    app.draw_top()
    for field in (*app.screen.query(Input), *app.screen.query(TextArea)):
        field.cursor_blink = False  # a picture must not depend on the half second in which it is taken
    await pilot.pause()


async def press(pilot: Pilot[Any], *keys: str) -> None:
    """Keys, one after the other, each settled."""
    await settle(pilot)
    for key in keys:
        await pilot.press(key)
        await settle(pilot)


def screen_text(app: ConsoleApp) -> str:
    """What is on the terminal now, as text."""
    width, height = app.size
    lines = app.screen._compositor.render_strips()
    return "\n".join("".join(s.text for s in line)[:width] for line in lines[:height])
