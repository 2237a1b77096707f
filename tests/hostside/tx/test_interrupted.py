"""A transaction cut anywhere: recovery or the next boot ends in a name, a committed release serves, no trial stays."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ddtree_console.demo.sandbox import Sandbox
from ddtree_console.domain.plan import Plan
from ddtree_console.domain.txview import TxView
from ddtree_console.hostside import releases
from tests.hostside.tx.slots import Slot

SIDE_BY_SIDE = 4
MOST = 60
"""more points than any transaction has: a test that gets there never ran through uncut."""


def cut(slot: Slot, what: str, at: int, how: str) -> Path:
    """Sets the point; the file that appears when it is reached."""
    reached = slot.tools / f"reached-{slot.unit}"
    reached.unlink(missing_ok=True)
    (slot.tools / f"cut-{slot.unit}.json").write_text(json.dumps({"what": what, "at": at, "how": how}))
    return reached


async def whole(slot: Slot, view: TxView, good: set[str]) -> None:
    """What must be true after any cut."""
    told = (slot.unit, view)
    assert view.outcome, told
    assert not slot.trial(), told
    committed = slot.state().committed
    assert committed, told
    assert slot.roots.committed(slot.unit).read_text() == slot.text(await slot.serves(), "ok"), told
    assert await slot.serves() in good, told
    assert [line["tx"] for line in slot.history()].count(view.tx) == 1, told
    assert [event.kind for event in slot.events(view.tx)].count("outcome") == 1, told
    numbers = [event.n for event in slot.events(view.tx)]
    assert numbers == list(range(len(numbers))), told


async def killed_at(slot: Slot, plan: Plan, what: str, at: int, good: set[str]) -> bool:
    """One run with SIGKILL at that point; whether the point was reached."""
    reached = cut(slot, what, at, "kill")
    view = await slot.outcome(await slot.submit(plan), 60)
    await whole(slot, view, good)
    return reached.exists()


async def every_point(slots: list[Slot], plans: list[Plan], what: str, good: set[str], step: int = 1) -> int:
    """Runs with the cut at 0, step, .. spread over the slots until the runs are no longer cut; how many were."""
    points = iter(range(0, MOST, step))
    counts: list[int] = []

    async def worker(slot: Slot, plan: Plan) -> None:
        for at in points:
            if not await killed_at(slot, plan, what, at, good):
                return
            counts.append(at)

    await asyncio.gather(*(worker(slot, plan) for slot, plan in zip(slots, plans, strict=True)))
    return len(counts)


@pytest.fixture
async def slots(tmp_path: Path) -> AsyncIterator[list[Slot]]:
    """Slots, each on a host of its own, whose r1 is committed and serves `one`, with a way back."""
    names = [f"h{i}" for i in range(SIDE_BY_SIDE)]
    async with Sandbox(tmp_path / "box", hosts=names, prepared=False) as box:
        made = [Slot(box.host(name)) for name in names]
        views = await asyncio.gather(*(s.deploy("one", "ok", way_back=s.candidate("wrapper", "ok")) for s in made))
        assert [view.outcome for view in views] == ["committed"] * len(made), views
        yield made


async def test_sigkill_after_each_event_of_a_deploy(slots: list[Slot]) -> None:
    plans = [s.plan("two", "ok", way_back=s.candidate("wrapper", "ok")) for s in slots]
    assert await every_point(slots, plans, "event", {"one", "two"}) > 25


async def test_sigkill_before_each_change_of_a_failing_deploy(slots: list[Slot]) -> None:
    plans = [s.plan("two", "oom", way_back=s.candidate("wrapper", "ok")) for s in slots]
    assert await every_point(slots, plans, "effect", {"one"}, 3) > 5


async def test_sigkill_before_each_change_of_a_rollback_still_gets_where_it_was_to_go(slots: list[Slot]) -> None:
    for slot in slots:
        assert (await slot.deploy("two", "ok", way_back=slot.candidate("wrapper", "ok"))).outcome == "committed"
    points = iter(range(1, MOST, 4))

    async def worker(slot: Slot) -> None:
        for at in points:
            reached = cut(slot, "effect", at, "kill")
            view = await slot.outcome(await slot.submit(slot.rollback("way-back")), 60)
            await whole(slot, view, {"two", "wrapper"})
            if view.outcome != "refused":
                assert await slot.serves() == "wrapper", view
            if not reached.exists():
                return
            (slot.tools / f"cut-{slot.unit}.json").unlink()
            await slot.outcome(await slot.submit(slot.rollback("r2")), 60)

    await asyncio.gather(*(worker(slot) for slot in slots))


async def test_power_loss_before_each_change_boots_the_committed_release(tmp_path: Path) -> None:
    async with Sandbox(tmp_path / "power", hosts=[f"p{i}" for i in range(3)], prepared=False) as box:
        points = iter(range(0, MOST, 3))
        cuts: list[int] = []

        async def worker(slot: Slot) -> None:
            assert (await slot.deploy("one", "ok")).outcome == "committed"
            for at in points:
                before = slot.state().committed
                reached = cut(slot, "effect", at, "freeze")
                tx = await slot.submit(slot.plan("two", "ok"))
                end = time.monotonic() + 30
                while not reached.exists() and time.monotonic() < end:
                    view = slot.view(tx)
                    if view is not None and view.outcome:
                        break
                    await asyncio.sleep(0.02)
                if not reached.exists():
                    return
                cuts.append(at)
                await slot.host.power_loss()
                await slot.until_serves()
                assert not slot.trial()
                assert slot.state().committed in (before, "r2", slot.newest()), at
                text = slot.roots.committed(slot.unit).read_text()
                assert text == slot.text(await slot.serves(), "ok")
                assert releases.edited(slot.roots, slot.unit) == ()
                if slot.view(tx) is not None:
                    closed = await slot.closed()
                    view = slot.view(tx)
                    assert view is not None
                    assert view.outcome in ("cut", "committed"), (at, closed)
                    assert slot.history()[-1]["tx"] == tx

        await asyncio.gather(*(worker(Slot(box.host(f"p{i}"))) for i in range(3)))
        assert len(cuts) > 5, cuts
