"""Draws the README's pictures by living the story in the real demo: no figure in them is invented.

    python screenshots/make.py [FOLDER]

The console is driven by its keys; each picture is taken when the state that it is about has been reached.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import resvg_py
from textual.pilot import Pilot

from ddtree_console.cli import live
from ddtree_console.demo.serve import running_demo
from ddtree_console.domain.snapshot import FleetSnapshot, ServiceSnapshot
from ddtree_console.ui.app import ConsoleApp
from ddtree_console.ui.screens.confirm import ConfirmScreen
from ddtree_console.ui.screens.launch import LaunchScreen

SIZE = (132, 32)
SPEED = 4.0
WAIT = 90.0
"""seconds for any one state of the story"""
LARGEST = 300_000
FONTS = (
    Path("/usr/share/fonts/truetype/dejavu"),
    Path("/usr/share/fonts/TTF"),
    Path("/usr/share/fonts/dejavu-sans-mono-fonts"),
)
QWEN, DFLASH = "ct129/sglang-qwen", "ct200/sglang-dflash"


def font_files() -> list[str]:
    """DejaVu Sans Mono, regular and bold; SystemExit says how to get it."""
    for folder in FONTS:
        found = [folder / name for name in ("DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf")]
        if all(f.is_file() for f in found):
            return [str(f) for f in found]
    raise SystemExit("DejaVu Sans Mono is not installed: apt install fonts-dejavu-core")


def png(svg: str) -> bytes:
    """A picture of Textual's SVG, which asks for a web font that is not here."""
    svg = re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.S).replace("Fira Code", "DejaVu Sans Mono")
    drawn = resvg_py.svg_to_bytes(svg_string=svg, width=1320, font_files=font_files(), skip_system_fonts=True)
    return bytes(drawn)


class Story:
    """One console on the demo, its pictures and its waiting."""

    def __init__(self, app: ConsoleApp, pilot: Pilot[str], folder: Path) -> None:
        self.app, self.pilot, self.folder = app, pilot, folder

    async def until(self, what: str, true: Callable[[FleetSnapshot], bool]) -> None:
        """Waits for a state of the fleet; SystemExit names what never came."""
        end = time.monotonic() + WAIT
        while not true(self.app.snapshot):
            if time.monotonic() > end:
                raise SystemExit(f"it never came: {what}")
            await self.pilot.pause(0.02)
        self.app.draw_top()
        await self.pilot.pause()

    def seen(self, key: str) -> ServiceSnapshot:
        """The service now."""
        service = self.app.snapshot.service(key)
        if service is None:
            raise SystemExit(f"no {key} in the demo")
        return service

    async def choose(self, key: str) -> None:
        """Moves the cursor to a service, by keys, from the fleet."""
        await self.pilot.press("g")
        for _ in range(20):
            if self.app.target_key() == key:
                return
            await self.pilot.press("j")
        raise SystemExit(f"{key} is not in the list")

    def attempts(self, key: str) -> int:
        """Starts in its transaction so far."""
        tx = self.seen(key).tx
        return 0 if tx is None else len(tx.attempts)

    def ended(self, key: str) -> bool:
        """Whether its transaction has an outcome."""
        tx = self.seen(key).tx
        return tx is not None and not tx.running

    def draws(self, key: str, phase: str, part: float) -> bool:
        """Whether that phase shows a real bar that far."""
        tx = self.seen(key).tx
        attempt = tx.attempt if tx is not None else None
        lines = attempt.phases if attempt is not None else ()
        return any(x.name == phase and x.done and x.total and x.done / x.total >= part for x in lines)

    async def checked(self) -> None:
        """Waits until the screen's checks of the host are done."""
        end = time.monotonic() + WAIT
        screen = self.app.screen
        while (isinstance(screen, ConfirmScreen) and screen.checking) or (
            isinstance(screen, LaunchScreen) and screen.preflight is None
        ):
            if time.monotonic() > end:
                raise SystemExit("the checks never ended")
            await self.pilot.pause(0.02)
        await self.pilot.pause(1.0)

    async def picture(self, name: str) -> None:
        """Writes NAME.png."""
        await self.pilot.pause()
        data = png(self.app.export_screenshot(title="ddtree-console"))
        if len(data) > LARGEST:
            raise SystemExit(f"{name}.png has {len(data):,} bytes, more than {LARGEST:,}")
        path = self.folder / f"{name}.png"
        await asyncio.to_thread(path.write_bytes, data)
        print(f"{path} {len(data):,} bytes")

    async def tell(self) -> None:
        """The story: a failing deployment, its going back, a healthy one, the way back with one key."""
        press = self.pilot.press
        await self.until(
            "two services ready", lambda s: sum(bool(x.http.tok_s) for h in s.hosts for x in h.services) >= 2
        )
        await self.choose(QWEN)
        await press("d")
        await self.checked()
        await press("enter")
        await self.until("the going back", lambda s: self.attempts(QWEN) > 1)
        await self.picture("going-back")
        await press("q")
        await self.until("the end of the first deployment", lambda s: self.ended(QWEN))
        await self.choose(QWEN)
        await press("x")
        await self.pilot.pause(1.0)
        await self.picture("why")
        await press("a")
        await self.checked()
        await self.picture("remedy")
        await press("q", "q")
        await self.choose(DFLASH)
        await press("d")
        await self.checked()
        await press("enter")
        await self.until("half of the graphs", lambda s: self.draws(DFLASH, "graphs", 0.4))
        await self.picture("deploy")
        await press("q")
        await self.picture("fleet")
        await self.until(
            "a served token and its figures", lambda s: self.ended(DFLASH) and bool(self.seen(DFLASH).http.tok_s)
        )
        await self.choose(DFLASH)
        await press("enter")
        await self.pilot.pause(1.0)
        await self.picture("host")
        await press("q")
        await self.choose(QWEN)
        await press("e")
        await self.checked()
        field = self.app.screen.focused
        await press("ctrl+u", *"0.95")
        await self.pilot.pause(1.5)
        assert field is self.app.screen.focused
        await self.picture("launch")
        await press("escape", "escape", "escape")
        await self.choose(QWEN)
        await press("R")
        await self.pilot.pause(0.4)
        await self.picture("rollback")
        await press("escape")


async def main(folder: Path) -> None:
    """Runs the demo, tells the story."""
    with running_demo(SPEED) as fleet:
        app = ConsoleApp(lambda: live.build(fleet, False), demo=True)
        async with app.run_test(size=SIZE, notifications=False) as pilot:
            await Story(app, pilot, folder).tell()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent))
