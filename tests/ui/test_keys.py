"""Keys: what they do, what a paste does not, and what --read-only takes away."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

from ddtree_console.services.api import RollbackPreview
from ddtree_console.services.errors import HostError
from ddtree_console.ui.app import ConsoleApp
from ddtree_console.ui.screens.confirm import ConfirmScreen
from ddtree_console.ui.screens.countdown import CountdownScreen
from ddtree_console.ui.screens.deploy import DeployScreen
from ddtree_console.ui.screens.fleet import FleetScreen
from ddtree_console.ui.screens.host import HostScreen
from ddtree_console.ui.screens.launch import LaunchScreen
from ddtree_console.ui.widgets.pick import Pick
from tests.ui.canned import snapshots
from tests.ui.doubles import DoubleConsole
from tests.ui.helpers import make, press, screen_text, settle

STATES = snapshots()
QWEN = "ct129/sglang-qwen"


def only_qwen(state: str = "failed") -> DoubleConsole:
    """A fleet whose first row is ct129/sglang-qwen."""
    return DoubleConsole(STATES[state])


async def until(pilot: Pilot[Any], what: Any, seconds: float = 3.0) -> None:
    """Waits until what() is true."""
    for _ in range(int(seconds / 0.01)):
        await pilot.pause(0.01)
        if what():
            return
    raise AssertionError("it never came")


def asked(double: DoubleConsole, what: str) -> list[tuple[Any, ...]]:
    """What was asked of the double."""
    return [a for a in double.asked if a[0] == what]


async def test_countdown_names_everything_and_acts_when_it_ends() -> None:
    double = only_qwen()
    app = make(double, countdown=0.3)
    async with app.run_test(size=(100, 30)) as pilot:
        await press(pilot, "R")
        text = screen_text(app)
        for word in ("ct129 / sglang-qwen", "linear-wrapper", "2, will be lost", "esc cancels"):
            assert word in text
        assert not asked(double, "rollback")
        await until(pilot, lambda: asked(double, "rollback"))
        assert asked(double, "rollback") == [("rollback", QWEN, "way-back", False)]
        await until(pilot, lambda: isinstance(app.screen, DeployScreen))


async def test_esc_cancels_the_countdown() -> None:
    double = only_qwen()
    app = make(double, countdown=0.3)
    async with app.run_test() as pilot:
        await press(pilot, "R", "escape")
        assert isinstance(app.screen, FleetScreen)
        await asyncio.sleep(0.4)
        assert not asked(double, "rollback")


async def test_second_press_acts_at_once_but_a_held_key_does_not() -> None:
    double = only_qwen()
    app = make(double, countdown=3600.0, clock=time.monotonic)
    async with app.run_test() as pilot:
        await settle(pilot)
        await pilot.press("R", "R")  # what a held key sends
        assert isinstance(app.screen, CountdownScreen)
        assert not asked(double, "rollback")
        await asyncio.sleep(0.3)
        await pilot.press("R")
        await until(pilot, lambda: asked(double, "rollback"))


async def test_previous_goes_to_known_good() -> None:
    double = only_qwen()
    app = make(double, countdown=0.05)
    async with app.run_test() as pilot:
        await press(pilot, "P")
        await until(pilot, lambda: asked(double, "rollback"))
        assert asked(double, "rollback")[0][2] == "known-good"


async def test_a_refused_rollback_says_why_and_does_not_count() -> None:
    double = only_qwen()
    double.rollback_is = RollbackPreview(QWEN, "way-back", "", None, "no way back is kept")
    app = make(double, countdown=0.5)
    async with app.run_test(size=(100, 30)) as pilot:
        await press(pilot, "R")
        await asyncio.sleep(0.6)
        await settle(pilot)
        assert "no way back is kept" in screen_text(app)
        assert not asked(double, "rollback")


async def test_a_locked_rollback_offers_to_take_over() -> None:
    double = only_qwen()
    double.fails = HostError("ct129", "rollback", "locked by eve@laptop", "wait, or take over", 6)
    app = make(double, countdown=0.05)
    async with app.run_test(size=(100, 30)) as pilot:
        await press(pilot, "R")
        await until(pilot, lambda: "takes over" in screen_text(app))
        assert "locked by eve@laptop" in screen_text(app)
        double.fails = None
        await pilot.press("T")
        await until(pilot, lambda: len(asked(double, "rollback")) == 2)
        assert asked(double, "rollback")[1][3] is True


@pytest.mark.parametrize("keys", [(), ("enter",), ("d",), ("e",), ("l",), ("l", "slash")])
async def test_a_paste_never_triggers_an_action(keys: tuple[str, ...]) -> None:
    double = only_qwen("ready")
    app = make(double, countdown=0.05)
    async with app.run_test() as pilot:
        await press(pilot, *keys)
        screen = app.screen
        app.post_message(events.Paste("R\nRd\n\x1b[201~qP+\r"))
        await settle(pilot)
        await asyncio.sleep(0.15)
        assert app.screen is screen
        assert not [a for a in double.asked if a[0] in ("rollback", "deploy", "request", "save")]


async def test_letters_in_a_text_field_are_text_and_ctrl_r_rolls_back() -> None:
    double = only_qwen()
    app = make(double, countdown=3600.0)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "e", "R", "d", "q")
        assert isinstance(app.screen, LaunchScreen)
        await press(pilot, "ctrl+r")
        assert isinstance(app.screen, CountdownScreen)


async def test_read_only_disables_what_changes_a_host() -> None:
    double = only_qwen("failed")
    app = make(double, read_only=True, countdown=0.01)
    async with app.run_test() as pilot:
        await press(pilot, "d", "R", "P", "plus", "ctrl+r")
        assert isinstance(app.screen, FleetScreen)
        assert double.asked == []
        assert "READ-ONLY" in screen_text(app)
        await press(pilot, "e")
        assert isinstance(app.screen, LaunchScreen)
        await press(pilot, "escape", "d")
        assert not isinstance(app.screen, ConfirmScreen)


async def test_read_only_may_watch_a_deployment() -> None:
    app = make(only_qwen("starting"), read_only=True)
    async with app.run_test() as pilot:
        await press(pilot, "d")
        assert isinstance(app.screen, DeployScreen)


async def test_a_console_that_is_read_only_makes_the_app_so() -> None:
    double = only_qwen()
    double.read_only = True
    app = make(double)
    async with app.run_test() as pilot:
        await press(pilot, "R")
        assert isinstance(app.screen, FleetScreen)


async def test_deploy_sends_what_the_screen_says() -> None:
    double = only_qwen("failed")
    app = make(double)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "d", "p", "o", "t", "3", "0", "enter", "r", "w", "h", "y", "enter")
        assert isinstance(app.screen, ConfirmScreen)
        assert not asked(double, "deploy")
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(app.screen, DeployScreen))
        options = {"on_failure": "stop", "hold": 30.0, "reason": "why", "force": False, "takeover": False}
        assert asked(double, "deploy") == [("deploy", QWEN, "linear-wrapper", options)]


async def test_a_refusal_needs_force_and_a_reason() -> None:
    double = only_qwen("failed")
    double.preview_is = replace(double.preview_is, refusals=("edited by hand",))
    app = make(double)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "d", "enter")
        assert not asked(double, "deploy")
        await press(pilot, "F", "escape", "enter")  # force, but no reason
        assert not asked(double, "deploy")
        await press(pilot, "r", "o", "k", "enter", "enter")
        assert [a[3]["force"] for a in asked(double, "deploy")] == [True]


async def test_an_accepted_refusal_that_cannot_be_forced_stays_refused() -> None:
    double = only_qwen("failed")
    double.preview_is = replace(double.preview_is, refusals=("port taken",), forceable=False)
    app = make(double)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "d", "F", "o", "k", "enter", "enter")
        assert not asked(double, "deploy")


async def test_a_host_that_refuses_the_deployment_is_quoted_and_t_takes_over() -> None:
    double = only_qwen("failed")
    app = make(double)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "d")
        double.fails = HostError("ct129", "deploy", "locked by eve@laptop", "wait, or take over", 6)
        await press(pilot, "enter")
        assert "locked by eve@laptop" in screen_text(app)
        double.fails = None
        await press(pilot, "T", "enter")
        assert [a[3]["takeover"] for a in asked(double, "deploy")] == [False, True]


async def test_extend_works_only_while_something_runs() -> None:
    double = only_qwen("starting")
    app = make(double)
    async with app.run_test() as pilot:
        await press(pilot, "plus")
        assert double.asked == [("request", QWEN, "extend")]
        double.push(STATES["ready"])
        await press(pilot, "plus")
        assert len(double.asked) == 1


async def test_enter_opens_the_deployment_that_runs_else_the_host() -> None:
    app = make(only_qwen("starting"))
    async with app.run_test() as pilot:
        await press(pilot, "enter")
        assert isinstance(app.screen, DeployScreen)
        await press(pilot, "q", "G", "enter")
        assert isinstance(app.screen, HostScreen)
        assert app.screen.target() == "ct200/wrapper"


async def test_the_cursor_stays_on_its_service_when_rows_move() -> None:
    double = only_qwen("ready")
    app = make(double)
    async with app.run_test() as pilot:
        await press(pilot, "j")
        table = app.screen.query_one(Pick)
        assert table.key == QWEN
        double.push(STATES["failed"])
        await settle(pilot)
        assert table.key == QWEN
        await press(pilot, "G")
        assert table.key == "ct200/wrapper"
        await press(pilot, "g")
        assert table.key == QWEN


async def test_since_you_left() -> None:
    double = only_qwen("starting")
    app = make(double)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "G", "h")
        double.push(STATES["failed"])
        await press(pilot, "escape")
        assert f"since you left: {QWEN} ◐ starting -> ✖ nothing serves" in screen_text(app)


async def test_copy_masks_secrets_and_says_so(tmp_path: Path) -> None:
    app = make(only_qwen("failed"), copies=tmp_path / "cache")
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "d", "y")
        copied = (tmp_path / "cache" / "copied.txt").read_text()
        assert "--mem-fraction-static 0.95" in copied
        assert "canary" not in copied + app.clipboard
        assert app.clipboard.strip() == copied.strip()
        assert "secrets are masked" in [n.message for n in app._notifications][-1]
        assert (tmp_path / "cache" / "copied.txt").stat().st_mode & 0o777 == 0o600


async def test_quitting_the_demo_asks_and_says_that_hosts_end() -> None:
    app = make(only_qwen(), demo=True)
    async with app.run_test() as pilot:
        await press(pilot, "q")
        assert "end with it" in screen_text(app)
        await pilot.press("x")
        await settle(pilot)
        assert isinstance(app.screen, FleetScreen)
        await press(pilot, "q")
        await pilot.press("q")
        await until(pilot, lambda: app._exit)


async def test_leaving_says_what_goes_on_without_the_console() -> None:
    app: ConsoleApp = make(only_qwen("starting"))
    async with app.run_test() as pilot:
        await settle(pilot)
        await pilot.press("q")
        await until(pilot, lambda: app._exit)
        assert any(QWEN in str(r) for r in app._exit_renderables)


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_zoom_and_back(size: tuple[int, int]) -> None:
    app = make(only_qwen("ready"))
    async with app.run_test(size=size) as pilot:
        await press(pilot, "enter", "tab", "z")
        pane = app.screen.maximized
        assert pane is not None and pane.id == "gpus"
        await until(pilot, lambda: pane.region.size == size)
        await press(pilot, "escape")
        assert app.screen.maximized is None and isinstance(app.screen, HostScreen)


async def test_the_palette_offers_every_key_for_the_chosen_service() -> None:
    app = make(only_qwen("starting"))
    async with app.run_test() as pilot:
        await settle(pilot)
        names = {c.title for c in app.get_system_commands(app.screen)}
        assert {"Deploy", "Roll back", "Edit", "Why", "Journal", "History", "Check", "Extend", f"Open {QWEN}"} <= names
