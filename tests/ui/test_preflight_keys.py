"""The launch editor's preflight: when it runs, what moves while one types, and what a failed check stops."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from ddtree_console.domain.drift import signature
from ddtree_console.domain.spec import Profile
from ddtree_console.services.errors import HostError
from ddtree_console.ui.app import ConsoleApp
from ddtree_console.ui.screens.confirm import ConfirmScreen
from ddtree_console.ui.screens.deploy import DeployScreen
from ddtree_console.ui.screens.host import HostScreen
from ddtree_console.ui.screens.launch import LaunchScreen
from ddtree_console.ui.widgets.addflag import AddFlag
from ddtree_console.ui.widgets.field import FieldInput
from ddtree_console.ui.widgets.memory_bar import MemoryBar
from ddtree_console.ui.widgets.rows import Rows
from tests.ui import canned, known
from tests.ui.doubles import DoubleConsole
from tests.ui.helpers import make, press, screen_text, settle

FAILED = canned.snapshots()["failed"]
QWEN = "ct129/sglang-qwen"


def asked(double: DoubleConsole, what: str) -> list[tuple[Any, ...]]:
    """What was asked of the double."""
    return [a for a in double.asked if a[0] == what]


async def opened(pilot: Pilot[str], app: ConsoleApp) -> None:
    """The console has its services and a first snapshot. Not `settle`: a check that is held back never settles."""
    await pilot.pause()
    while app.services is None or not app.snapshot.hosts:
        await pilot.pause(0.01)


async def test_the_editor_checks_once_when_it_opens_and_again_with_c() -> None:
    double = DoubleConsole(FAILED)
    app = make(double)
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "e")
        assert [a[2] for a in asked(double, "preflight")] == [canned.PROFILES["shadow-small"]]
        text = screen_text(app)
        for word in ("sglang 0.5.12", "torch 2.11.0+cu130", "▲ way back", "warning", "-> rehearse it", "✓ port"):
            assert word in text, word
        await press(pilot, "escape", "c")
        assert len(asked(double, "preflight")) == 2


async def test_while_it_runs_the_form_can_be_used() -> None:
    double = DoubleConsole(FAILED)
    double.gate = asyncio.Event()
    app = make(double)
    async with app.run_test(size=(160, 48)) as pilot:
        await opened(pilot, app)
        await pilot.press("e")
        while not asked(double, "preflight"):
            await pilot.pause(0.01)
        await pilot.pause()
        assert "checking…" in screen_text(app)
        await pilot.press("ctrl+u", *"0.5")
        field = app.focused
        assert isinstance(field, Input) and field.value == "0.5"
        double.gate.set()
        await settle(pilot)
        assert "edited since: c checks again" in screen_text(app)


async def test_the_bar_moves_while_one_types() -> None:
    double = DoubleConsole(FAILED)
    app = make(double)
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "e")
        bar = app.screen.query_one(MemoryBar)
        assert bar.estimate is not None and bar.estimate.verdict == "fits"
        await pilot.press("ctrl+u", *"0.06")
        for _ in range(200):
            await pilot.pause(0.01)
            if bar.estimate.verdict != "fits":
                break
        assert bar.estimate.verdict == "does not fit"
        assert len(asked(double, "preflight")) == 1  # the host was not asked for it
        assert asked(double, "forecast")[-1][2].flags["mem-fraction-static"] == 0.06


async def test_marks_say_what_this_build_wants() -> None:
    double = DoubleConsole(FAILED)
    double.preflight_is = known.failed_preflight
    flags = {
        "cuda-graph-max-bs": 8,
        "disable-piecewise-cuda-graph": True,
        "hybrid-kvcache-ratio": 0.5,
        "mystery": [1, 2],
    }
    base = Profile("odd", flags=flags)
    double.fleet = replace(double.fleet, profiles={**double.fleet.profiles, "shadow-small": base})
    app = make(double)
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "e")
        text = screen_text(app)
        for word in (
            "✖ removed: --disable-prefill-cuda-graph · gone since 0.5.20",
            "✖ ambiguous: --cuda-graph-max-bs-decode",
            "✖ unknown",
            "hybrid-kvcache-ratio",
            "-> --disable-prefill-cuda-graph",
            "gone since 0.5.20",
        ):
            assert word in text, word
        screen = app.screen
        assert isinstance(screen, LaunchScreen) and screen.built().profile == base
        for field in screen.query(Input):
            if getattr(getattr(field, "field", None), "name", "") == "disable-piecewise-cuda-graph":
                field.focus()
        await settle(pilot)
        assert "removed · this build wants --disable-prefill-cuda-graph" in screen.query_one("#help", Rows).text


async def test_what_could_not_be_checked_says_why_and_blocks_nothing() -> None:
    double = DoubleConsole(FAILED)
    double.preflight_fails = HostError("ct129", "preflight", "connection lost", "it is dialled again", 5)
    app = make(double)
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "e")
        assert "not known: ct129" in screen_text(app) and "connection lost" in screen_text(app)
        await press(pilot, "escape", "d", "enter")
        assert isinstance(app.screen, DeployScreen)


async def test_a_failed_check_refuses_until_forced_with_a_reason() -> None:
    double = DoubleConsole(FAILED)
    double.preflight_is = known.failed_preflight
    app = make(double)
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "d")
        text = screen_text(app)
        assert "refused: CUDA ABI: torch 2.11.0+cu128" in text and "-> /root/ml-env/bin/python3 -m pip" in text
        await press(pilot, "enter", "F", "escape", "enter")
        assert not asked(double, "deploy")
        await press(pilot, "r", "o", "k", "enter", "enter")
        [(_, _, _, options)] = asked(double, "deploy")
        assert options["force"] is True and options["reason"] == "ok"


async def test_the_editors_own_checks_are_taken_over_unless_it_was_edited_since() -> None:
    double = DoubleConsole(FAILED)
    app = make(double)
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "e", "escape", "d")
        assert isinstance(app.screen, ConfirmScreen)
        assert len(asked(double, "preflight")) == 1
        await press(pilot, "escape", "enter")
        await pilot.press("ctrl+u", *"0.5")
        await press(pilot, "escape", "d")
        assert isinstance(app.screen, ConfirmScreen)
        assert len(asked(double, "preflight")) == 2


@pytest.mark.parametrize("good", [True, False])
async def test_enter_waits_for_the_checks(good: bool) -> None:
    double = DoubleConsole(FAILED)
    double.gate = asyncio.Event()
    app = make(double)
    async with app.run_test(size=(160, 48)) as pilot:
        await opened(pilot, app)
        await pilot.press("d")
        while not asked(double, "preview"):
            await pilot.pause(0.01)
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert not asked(double, "deploy") and "deploys as soon as the checks pass" in screen_text(app)
        if not good:
            double.preflight_is = known.failed_preflight
        double.gate.set()
        await settle(pilot)
        assert len(asked(double, "deploy")) == (1 if good else 0)
        assert isinstance(app.screen, DeployScreen if good else ConfirmScreen)


async def test_drift_is_accepted_by_asking_twice() -> None:
    double = DoubleConsole(known.snapshots()["ailing"])
    app = make(double)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "enter")
        text = screen_text(app)
        for word in ("≠ DRIFT", "max-running-requests 16", "12", "the state cache holds 12 requests", "accept ≠"):
            assert word in text, word
        await press(pilot, "A", "x")
        assert not asked(double, "accept drift")
        await press(pilot, "A", "A")
        assert asked(double, "accept drift") == [("accept drift", "ct200/sglang-dflash")]
        await press(pilot, "j")
        assert "accept ≠" not in screen_text(app)  # the other service has none


async def test_accepted_drift_stays_in_sight_without_its_key_until_it_changes() -> None:
    double = DoubleConsole(known.snapshots()["ailing"])
    host = double.now.hosts[0]
    drifted = host.services[0]
    release = replace(drifted.release, accepted_drift=signature(drifted.drift))
    taken = replace(drifted, release=release)
    double.now = canned.fleet(replace(host, services=(taken, host.services[1])))
    app = make(double)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "g", "enter")
        text = screen_text(app)
        assert "accepted until they change" in text and "accept ≠" not in text and "ready ≠" not in text
        changed = replace(taken, drift=(replace(drifted.drift[0], effective="8"), *drifted.drift[1:]))
        double.push(canned.fleet(replace(host, services=(changed, host.services[1]))))
        await press(pilot)
        assert "accept ≠" in screen_text(app) and "ready ≠" in screen_text(app)


async def test_drift_cannot_be_accepted_read_only() -> None:
    double = DoubleConsole(known.snapshots()["ailing"])
    app = make(double, read_only=True)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "enter", "A", "A")
        assert isinstance(app.screen, HostScreen) and not asked(double, "accept drift")


async def test_a_flag_of_the_build_is_added_by_name() -> None:
    double = DoubleConsole(FAILED)
    app = make(double)
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "e")
        app.screen.query_one(AddFlag).query_one(Input).focus()
        await pilot.press(*"--quant")
        await press(pilot, "right", "enter")
        await pilot.press(*"fp8")
        await press(pilot, "escape")
        screen = app.screen
        assert isinstance(screen, LaunchScreen)
        built = screen.built().profile
        assert built is not None
        assert built.flags == {**canned.PROFILES["shadow-small"].flags, "quantization": "fp8"}
        app.screen.query_one(AddFlag).query_one(Input).focus()
        await pilot.press(*"quantization")
        await press(pilot, "enter")
        assert len([f for f in screen.query(FieldInput) if f.field.name == "quantization"]) == 1
        assert app.focused is next(f for f in screen.query(FieldInput) if f.field.name == "quantization")
