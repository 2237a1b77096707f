"""10,000 journal lines a second: keys are answered, and every line that is not shown is counted."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from textual.pilot import Pilot

from ddtree_console.services.api import JournalLine
from ddtree_console.ui.screens.journal import JournalScreen
from ddtree_console.ui.widgets.feed import JournalFeed
from ddtree_console.ui.widgets.journal import KEEP
from tests.ui.canned import INVOCATION, WALL, snapshots
from tests.ui.doubles import DoubleConsole
from tests.ui.helpers import make, press, screen_text

RATE = 10_000


class Flood(DoubleConsole):
    """Lines come with the clock."""

    def __init__(self) -> None:
        super().__init__(snapshots()["ready"])
        self.began = time.monotonic()

    def made(self) -> int:
        """Lines so far."""
        return int((time.monotonic() - self.began) * RATE)

    def journal(self, key: str, after: int = -1, limit: int = 2000) -> Sequence[JournalLine]:
        """The newest `limit`."""
        end = self.made()
        first = max(after + 1, end - limit)
        text = "[TP0] Decode batch, #running-req: 4, token usage: 0.42, gen throughput (token/s): 171.03"
        return [JournalLine(n, WALL, "u", f"{n} {text}", 6, INVOCATION) for n in range(first, end)]


async def key_waits(pilot: Pilot[str], feed: JournalFeed, seconds: float) -> list[float]:
    """Seconds from a key to its effect (`f` turns following on or off), again and again, sorted."""
    waits = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        before, start = feed.following, time.perf_counter()
        pilot.app.simulate_key("f")
        while feed.following is before:
            await pilot.pause(0)
        waits.append(time.perf_counter() - start)
    return sorted(waits)


async def test_keys_are_answered_within_50_ms_in_a_flood() -> None:
    double = Flood()
    app = make(double)
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, "l")
        feed = app.screen.query_one(JournalFeed)
        # The best of three: other programs on this machine make a window worse, never better.
        slow: list[float] = []
        while len(slow) < 3 and not (slow and slow[-1] < 0.05):
            flooded = await key_waits(pilot, feed, 1.5)
            slow.append(flooded[int(len(flooded) * 0.95)])
        assert min(slow) < 0.05, slow
        assert feed.after > RATE
        assert feed.skipped > 0 and any(x.gap for x in feed._all)
        assert feed.count <= KEEP


async def test_every_line_is_shown_or_counted() -> None:
    double = DoubleConsole(snapshots()["ready"])
    double.lines = [JournalLine(n, WALL, "u", f"line {n}", 6, INVOCATION) for n in range(5000)]
    app = make(double)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "l")
        feed = app.screen.query_one(JournalFeed)
        assert feed.count == 2000 and feed.after == 4999
        double.lines = [JournalLine(n, WALL, "u", f"line {n}", 6, INVOCATION) for n in range(5000, 12_000)]
        feed.pull()
        assert feed.skipped == 6500
        await press(pilot)
        assert "+6,500 dropped" in screen_text(app)
        assert any("+6,500 lines not shown" in x.gap for x in feed._all)


async def test_pause_takes_nothing_and_filter_narrows_the_view() -> None:
    double = DoubleConsole(snapshots()["ready"])
    app = make(double)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "l", "space")
        feed = app.screen.query_one(JournalFeed)
        double.lines = [*double.lines, JournalLine(60, WALL, "u", "after the pause", 6)]
        feed.pull()
        assert feed.after == 59
        await press(pilot, "space")
        assert feed.after == 60
        await press(pilot, "slash", "a", "f", "t", "e", "r", "enter")
        assert isinstance(app.screen, JournalScreen)
        assert feed.count == 2  # the line and the gap marker, which is never hidden
        assert "after the pause" in screen_text(app)


@pytest.mark.parametrize("key", ["k", "pageup", "g"])
async def test_scrolling_up_stays_while_lines_come(key: str) -> None:
    double = DoubleConsole(snapshots()["ready"])
    app = make(double)
    async with app.run_test(size=(120, 20)) as pilot:
        await press(pilot, "l", key)
        feed = app.screen.query_one(JournalFeed)
        top = feed.scroll_offset.y
        assert not feed.following
        double.lines = [*double.lines, JournalLine(60, WALL, "u", "new", 6)]
        feed.pull()
        await press(pilot)
        assert feed.scroll_offset.y == top and feed.unseen == 1
        await press(pilot, "f")
        assert feed.following and feed.scroll_offset.y == feed.max_scroll_y
