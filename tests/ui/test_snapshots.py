"""Every screen in its states at the four sizes. A picture that changes must be looked at before it is accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot

from ddtree_console.domain.spec import Fleet
from ddtree_console.services.errors import HostError, NoFleet
from ddtree_console.ui.app import ConsoleApp
from tests.ui import known
from tests.ui.canned import snapshots
from tests.ui.doubles import DoubleConsole
from tests.ui.helpers import NORMAL, SMALL, TINY, WIDE, make, press, settle

STATES = snapshots()
SIZES = {"wide": WIDE, "normal": NORMAL, "small": SMALL, "tiny": TINY}

# (name, state, keys): shown at all sizes
EVERYWHERE = [
    ("fleet", "starting", ()),
    ("host", "ready", ("enter",)),
    ("deploy", "starting", ("d",)),
    ("journal", "ready", ("l",)),
]
# shown at two sizes
AT_TWO = [
    ("fleet-failed", "failed", (), (WIDE, TINY)),
    ("fleet-error", "error", (), (NORMAL, SMALL)),
    ("fleet-stale", "stale", (), (SMALL, TINY)),
    ("fleet-locked", "locked", (), (WIDE, SMALL)),
    ("fleet-back", "back", (), (NORMAL, TINY)),
    ("deploy-back", "back", ("d",), (WIDE, SMALL)),
    ("deploy-failed", "failed", ("d", "escape", "x"), (NORMAL, SMALL)),
    ("host-error", "error", ("enter",), (WIDE, SMALL)),
    ("confirm", "ready", ("d",), (WIDE, SMALL)),
    ("launch", "failed", ("e",), (WIDE, SMALL)),
    ("history", "ready", ("h", "j"), (NORMAL, SMALL)),
    ("check", "ready", ("c",), (NORMAL, SMALL)),
    ("help", "ready", ("question_mark",), (WIDE, SMALL)),
    ("countdown", "ready", ("R",), (NORMAL, TINY)),
]
# shown once
ONCE = [
    ("fleet-ready", "ready", (), NORMAL),
    ("fleet-drift", "drift", (), SMALL),
    ("host-no-gpu", "no-gpu", ("enter",), NORMAL),
    ("host-starting", "starting", ("j", "enter"), NORMAL),
    ("history-tiny", "ready", ("h",), TINY),
    ("check-tiny", "ready", ("c",), TINY),
    ("why-tiny", "failed", ("x",), TINY),
    ("palette", "ready", ("colon",), SMALL),
    ("fleet-filtered", "starting", ("slash", "c", "t", "2"), SMALL),
]


def _bad(double: DoubleConsole) -> None:
    double.preflight_is = known.failed_preflight


def _unknown(double: DoubleConsole) -> None:
    double.preflight_fails = HostError(
        "ct129", "preflight", "connection lost", "it is dialled again; c checks again", 5
    )


def _story(double: DoubleConsole) -> None:
    double.history_is, double.lines = known.STORY, known.decisive_journal(known.GRAPHS)


# (name, state, keys, what is known, sizes)
KNOWN: list[tuple[str, str, tuple[str, ...], Callable[[DoubleConsole], None] | None, tuple[tuple[int, int], ...]]] = [
    ("launch-bad", "failed", ("e",), _bad, (WIDE, NORMAL, SMALL)),
    ("launch-unknown", "failed", ("e",), _unknown, (NORMAL,)),
    ("apply", "found", ("a",), None, (WIDE, SMALL)),
    ("why-found", "found", ("x",), _story, (WIDE, NORMAL, SMALL, TINY)),
    ("why-ailing", "ailing", ("G", "x"), None, (NORMAL,)),
    ("host-found", "found", ("enter",), None, (NORMAL,)),
    ("host-ailing", "ailing", ("enter",), None, (NORMAL, SMALL)),
    ("accept-drift", "ailing", ("enter", "A"), None, (SMALL,)),
    ("deploy-found", "going-back", ("d",), None, (NORMAL, SMALL)),
    ("deploy-stuck", "stuck", ("d",), None, (SMALL,)),
    ("fleet-found", "ailing", ("G",), None, (WIDE,)),
    ("history-story", "found", ("h", "j"), _story, (WIDE,)),
    ("confirm-bad", "ready", ("d",), _bad, (NORMAL,)),
]


def _cases() -> list[Any]:
    out = [pytest.param(s, k, z, id=f"{n}-{zn}") for n, s, k in EVERYWHERE for zn, z in SIZES.items()]
    out += [pytest.param(s, k, z, id=f"{n}-{z[0]}") for n, s, k, sizes in AT_TWO for z in sizes]
    return out + [pytest.param(s, k, z, id=n) for n, s, k, z in ONCE]


@pytest.mark.parametrize(("state", "keys", "size"), _cases())
def test_screen(snap_compare: Callable[..., bool], state: str, keys: tuple[str, ...], size: tuple[int, int]) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await press(pilot, *keys)

    assert snap_compare(make(STATES[state], countdown=3600.0), terminal_size=size, run_before=before)


@pytest.mark.parametrize(
    ("state", "keys", "prepare", "size"),
    [pytest.param(s, k, p, z, id=f"{n}-{z[0]}") for n, s, k, p, sizes in KNOWN for z in sizes],
)
def test_known(
    snap_compare: Callable[..., bool],
    state: str,
    keys: tuple[str, ...],
    prepare: Callable[[DoubleConsole], None] | None,
    size: tuple[int, int],
) -> None:
    double = DoubleConsole({**STATES, **known.snapshots()}[state])
    if prepare is not None:
        prepare(double)

    async def before(pilot: Pilot[Any]) -> None:
        await press(pilot, *keys)

    assert snap_compare(make(double, countdown=3600.0), terminal_size=size, run_before=before)


def test_demo_and_read_only_stay_on_screen(snap_compare: Callable[..., bool]) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await press(pilot, "enter")

    app = make(STATES["ready"], demo=True, read_only=True)
    assert snap_compare(app, terminal_size=SMALL, run_before=before)


@pytest.mark.parametrize("theme", ["console-light", "ansi-dark"])
def test_themes(snap_compare: Callable[..., bool], theme: str) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        pilot.app.theme = theme
        await press(pilot, "d")

    assert snap_compare(make(STATES["back"]), terminal_size=NORMAL, run_before=before)


def test_no_fleet_shows_the_way_in(snap_compare: Callable[..., bool]) -> None:
    def load() -> DoubleConsole:
        raise NoFleet(["profiles/fleet.yaml", "~/.config/ddtree-console/fleet.yaml"])

    async def before(pilot: Pilot[Any]) -> None:
        for _ in range(200):
            await pilot.pause(0.01)
            if len(pilot.app.screen_stack) > 1:
                break

    assert snap_compare(ConsoleApp(load, clock=lambda: 5.0, wall=lambda: 0.0), terminal_size=SMALL, run_before=before)


def test_empty_fleet_shows_the_way_in(snap_compare: Callable[..., bool]) -> None:
    double = DoubleConsole(STATES["empty"], Fleet("fleet.yaml"))

    async def before(pilot: Pilot[Any]) -> None:
        await settle(pilot)

    assert snap_compare(make(double), terminal_size=TINY, run_before=before)


def test_confirm_with_a_refusal(snap_compare: Callable[..., bool]) -> None:
    double = DoubleConsole(STATES["ready"])
    refusal = "unit edited by hand: /etc/systemd/system/sglang-qwen.service; adopt it, or force with a reason"
    double.preview_is = replace(double.preview_is, refusals=(refusal,))

    async def before(pilot: Pilot[Any]) -> None:
        await press(pilot, "d")

    assert snap_compare(make(double), terminal_size=NORMAL, run_before=before)
