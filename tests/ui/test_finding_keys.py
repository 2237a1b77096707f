"""Findings by key: why, the remedies, the launch form with their edits, and the second `a` that deploys."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddtree_console.domain.findings.types import Edit, Remedy
from ddtree_console.domain.spec import Profile
from ddtree_console.services.errors import HostError
from ddtree_console.ui.app import ConsoleApp
from ddtree_console.ui.screens.confirm import ConfirmScreen
from ddtree_console.ui.screens.countdown import HELD_KEY
from ddtree_console.ui.screens.deploy import DeployScreen
from ddtree_console.ui.screens.fleet import FleetScreen
from ddtree_console.ui.screens.launch import LaunchScreen
from ddtree_console.ui.screens.why import WhyScreen
from ddtree_console.ui.widgets.journal import JournalPane
from tests.ui import canned, known
from tests.ui.doubles import DoubleConsole
from tests.ui.helpers import make, press, screen_text, settle

STATES = known.snapshots()
QWEN = "ct129/sglang-qwen"


class Clock:
    """Monotonic seconds, as told."""

    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now


def double_with(state: str = "found") -> DoubleConsole:
    """Its first row is ct129/sglang-qwen, with a finding; no request runs there any more."""
    double = DoubleConsole(STATES[state])
    double.preview_is = replace(double.preview_is, running_requests=0, warnings=())
    double.lines = known.decisive_journal(known.GRAPHS)
    double.history_is = known.STORY
    return double


def asked(double: DoubleConsole, what: str) -> list[tuple[Any, ...]]:
    """What was asked of the double."""
    return [a for a in double.asked if a[0] == what]


def started(double: DoubleConsole, clock: Clock) -> ConsoleApp:
    """An app whose clock is moved by hand."""
    return make(double, clock=clock)


async def test_a_makes_the_first_remedy_and_a_second_a_deploys_it() -> None:
    double, clock = double_with("pool"), Clock()
    double.kept["r12"] = replace(canned.PROFILES["shadow-small"], flags={"mem-fraction-static": 0.2})
    app = started(double, clock)
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "a")
        assert isinstance(app.screen, LaunchScreen)
        text = screen_text(app)
        assert "0.2 -> 0.31" in text and "guess" not in text
        assert not asked(double, "deploy")
        clock.now += HELD_KEY
        await press(pilot, "a")
        assert isinstance(app.screen, DeployScreen)
        [(_, key, profile, options)] = asked(double, "deploy")
        assert key == QWEN
        assert profile.name == "shadow-small-edited" and profile.flags["mem-fraction-static"] == 0.31
        assert options == {"reason": "remedy: Raise mem-fraction-static to at least 0.31."}


async def test_a_held_key_does_not_deploy() -> None:
    double, clock = double_with(), Clock()
    app = started(double, clock)
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "a", "a", "a")
        assert isinstance(app.screen, LaunchScreen)
        assert not asked(double, "deploy")


async def test_a_value_that_nobody_computed_is_said_to_be_a_guess() -> None:
    app = started(double_with(), Clock())
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "a")
        text = screen_text(app)
        assert "0.95 -> 0.9" in text and "mem-fraction-static 0.9 is a guess" in text


async def refused(double: DoubleConsole) -> str:
    """What the second `a` shows where something stands against it; nothing may have been deployed."""
    clock = Clock()
    app = started(double, clock)
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "a")
        clock.now += HELD_KEY
        await press(pilot, "a")
        assert isinstance(app.screen, ConfirmScreen)
        assert not asked(double, "deploy")
        return screen_text(app)


async def test_a_refusal_brings_the_usual_question() -> None:
    double = double_with()
    double.preview_is = replace(double.preview_is, refusals=("edited by hand",))
    assert "refused: edited by hand" in await refused(double)


async def test_a_failed_check_brings_the_usual_question() -> None:
    double = double_with()
    double.preflight_is = known.failed_preflight
    assert "refused: CUDA ABI" in await refused(double)


async def test_requests_that_would_be_lost_bring_the_usual_question() -> None:
    double = double_with()
    double.preview_is = replace(double.preview_is, running_requests=3)
    assert "3 running, will be lost" in await refused(double)


async def test_an_edit_that_cannot_be_made_is_named_and_asked_about() -> None:
    remedy = Remedy(
        "Halve the cache.", (Edit("flag", "max-mamba-cache-size", "lower"), known.GRAPHS.remedies[0].edits[0])
    )
    finding = replace(known.GRAPHS, remedies=(remedy,))
    double = double_with()
    double.now = canned.fleet(canned.a6000(known.with_finding(finding)))
    clock = Clock()
    app = started(double, clock)
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "a")
        assert "not made: lower max-mamba-cache-size" in screen_text(app)
        clock.now += HELD_KEY
        await press(pilot, "a")
        assert isinstance(app.screen, ConfirmScreen) and not asked(double, "deploy")


async def test_a_host_that_refuses_the_remedy_is_quoted_and_the_form_stays() -> None:
    double, clock = double_with(), Clock()
    app = started(double, clock)
    async with app.run_test(size=(160, 48), notifications=True) as pilot:
        await press(pilot, "a")
        clock.now += HELD_KEY
        double.fails = HostError("ct129", "deploy", "locked by eve@laptop", "wait", 6)
        await press(pilot, "a")
        assert isinstance(app.screen, LaunchScreen)
        assert "locked by eve@laptop" in screen_text(app)


async def test_the_next_attempt_goes_on_from_one_that_was_never_saved() -> None:
    double = double_with()
    tried = replace(canned.PROFILES["shadow-small"], name="shadow-small-edited", flags={"mem-fraction-static": 0.83})
    double.kept["r12"] = tried
    app = started(double, Clock())
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "a")
        assert "0.83 -> 0.78" in screen_text(app)
        await press(pilot, "escape")
        assert isinstance(app.screen, FleetScreen)  # a remedy that nobody touched is no loss
        service = double.now.hosts[0].services[0]
        assert service.tx is not None
        gone = replace(service, tx=replace(service.tx, profile="shadow-small-edited"))
        double.push(replace(double.now, hosts=(replace(double.now.hosts[0], services=(gone,)), *double.now.hosts[1:])))
        await press(pilot, "e")
        screen = app.screen
        assert isinstance(screen, LaunchScreen)
        built = screen.built().profile
        assert built is not None and built.flags == tried.flags


async def test_without_a_profile_on_the_host_it_goes_on_from_what_is_stored() -> None:
    double = double_with()
    double.kept = {}
    app = started(double, Clock())
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "a")
        assert "0.95 -> 0.9" in screen_text(app)


async def test_why_shows_remedies_attempts_and_the_decisive_lines() -> None:
    app = started(double_with(), Clock())
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "x")
        text = screen_text(app)
        for word in (
            "The GPU ran out of memory while CUDA graphs were captured.",
            "95 % sure",
            "– a pool that is too small",
            "the last edit did it: mem-fraction-static",
            "nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
            "r12  ",
            "Weights and draft leave no room",
            "r14  ",
            "ptxas refuses Triton's kernel",
            "2 decisive",
        ):
            assert word in text, word
        pane = app.screen.query_one("#journal", JournalPane)
        assert [pane._view[i].text.split("] ", 1)[1] for i in pane.marks] == [e.text for e in known.GRAPHS.evidence]
        assert pane.scroll_offset.y <= pane.marks[0] < pane.scroll_offset.y + pane.size.height


async def test_numbers_choose_a_remedy_a_applies_it_and_y_copies_its_command(tmp_path: Path) -> None:
    double = double_with()
    app = make(double, copies=tmp_path)
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "x", "3", "y")
        assert app.clipboard.strip() == known.GRAPHS.remedies[2].command
        await press(pilot, "a")
        assert isinstance(app.screen, WhyScreen)  # a command for the host has no edits
        await press(pilot, "9", "2", "a")
        assert isinstance(app.screen, LaunchScreen)
        built = app.screen.built().profile
        assert built is not None and built.flags["disable-piecewise-cuda-graph"] is True


async def test_a_is_not_offered_where_nothing_was_found() -> None:
    double = DoubleConsole(canned.snapshots()["ready"])
    app = make(double)
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "a")
        assert isinstance(app.screen, FleetScreen)
        assert "a apply" not in screen_text(app)
        double.push(STATES["found"])
        await press(pilot, "g")
        assert "a apply" in screen_text(app)


async def test_a_journal_that_cannot_be_read_leaves_the_evidence() -> None:
    class Unread(DoubleConsole):
        async def logs(self, key: str, **options: Any) -> Any:
            raise HostError("ct129", "logs", "connection lost", "it is dialled again", 5)

    app = make(Unread(STATES["found"]))
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "x")
        text = screen_text(app)
        assert "connection lost" in text and "Tried to allocate 2.00 GiB" in text


async def test_an_ailment_is_about_the_committed_release() -> None:
    double = double_with("ailing")
    finding = replace(known.BADGE, remedies=(known.POOL.remedies[0],))
    host = double.now.hosts[0]
    double.now = canned.fleet(replace(host, services=(replace(host.services[0], finding=finding), host.services[1])))
    double.kept = {"r43": Profile("dflash-smoke", flags={"mem-fraction-static": 0.2})}
    app = started(double, Clock())
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "a")
        assert "dflash-smoke" in screen_text(app) and "0.2 -> 0.31" in screen_text(app)


async def test_read_only_shows_the_remedy_and_deploys_nothing() -> None:
    double, clock = double_with(), Clock()
    app = make(double, clock=clock, read_only=True)
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "a")
        assert isinstance(app.screen, LaunchScreen)
        clock.now += HELD_KEY
        await press(pilot, "a")
        assert isinstance(app.screen, LaunchScreen) and not asked(double, "deploy")


async def test_a_finding_is_on_the_screen_within_a_second_of_its_event() -> None:
    double = DoubleConsole(canned.fleet())
    app = make(double, clock=time.monotonic)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "d")
        double.push(STATES["going-back"])
        began = time.monotonic()
        while "The GPU ran out of memory" not in screen_text(app):
            await pilot.pause(0.01)
            assert time.monotonic() - began < 1.0
        await settle(pilot)
