"""Start: the first frame waits for nothing, and a bad fleet gives the screen back."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from ddtree_console.ui.app import ConsoleApp
from ddtree_console.ui.screens.fleet import FleetScreen
from ddtree_console.ui.widgets.rows import Rows
from tests.ui.canned import snapshots
from tests.ui.doubles import DoubleConsole
from tests.ui.helpers import make, press, screen_text, settle


class BadFleet(Exception):
    """As config's: problems with file:line."""

    def __init__(self) -> None:
        super().__init__("2 problems")
        self.problems = ("fleet.yaml:3: hosts.ct129.prot: unknown key", "fleet.yaml:9: hosts.ct200.port: not a number")


async def test_a_bad_fleet_ends_the_app_with_its_problems() -> None:
    def load() -> DoubleConsole:
        raise BadFleet

    app = ConsoleApp(load)
    async with app.run_test() as pilot:
        for _ in range(300):
            await pilot.pause(0.01)
            if app._exit:
                break
    assert app.return_code == 2
    assert app.return_value == "\n".join(BadFleet().problems)


async def test_the_first_frame_does_not_wait_for_the_services() -> None:
    gate = threading.Event()

    def load() -> DoubleConsole:
        gate.wait(20)
        return DoubleConsole()

    app = make()
    app._load = load
    async with app.run_test() as pilot:
        await pilot.pause()
        assert isinstance(app.screen, FleetScreen)
        assert "reading the fleet" in screen_text(app)
        await pilot.press("d", "R", "e", "l")  # nothing to act on yet
        assert isinstance(app.screen, FleetScreen)
        gate.set()
        await settle(pilot)
        assert "sglang-qwen" in screen_text(app)


async def test_a_monitor_that_dies_is_named_and_the_screen_stays() -> None:
    class Dies(DoubleConsole):
        async def run(self) -> None:
            raise OSError("no sockets left")

    app = make(Dies())
    async with app.run_test(size=(120, 30)) as pilot:
        await press(pilot)
        assert "the monitor stopped: no sockets left" in screen_text(app)


async def test_an_unchanged_snapshot_repaints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    double = DoubleConsole(snapshots()["ready"])
    app = make(double)
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot)
        painted: list[tuple[str | None, int]] = []
        original = Rows.refresh_line

        def noted(pane: Rows, y: int) -> None:
            painted.append((pane.id, y))
            original(pane, y)

        monkeypatch.setattr(Rows, "refresh_line", noted)
        double.push(double.now)
        await settle(pilot)
        assert painted == []
        hosts = double.now.hosts
        service = hosts[0].services[0]
        changed = replace(service, http=replace(service.http, tok_s=999.0))
        double.push(replace(double.now, hosts=(replace(hosts[0], services=(changed,)), *hosts[1:])))
        await settle(pilot)
        assert [p for p in painted if p[0] == "main"] == [("main", 2)]


@pytest.mark.parametrize("module", ["asyncssh", "httpx", "pydantic", "yaml", "textual.widgets._data_table"])
def test_the_first_frame_imports_nothing_heavy(module: str) -> None:
    code = f"import sys, ddtree_console.ui.app; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
