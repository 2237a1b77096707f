"""Two operators at one service: one transaction at a time, both see the same, and either may send it back."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path

import pytest

from ddtree_console.services.errors import HostError
from tests.lab.faults import serves_committed
from tests.lab.faults_net.place import KEY, Place
from tests.lab.faults_net.station import station
from tests.lab.faults_net.truth import ended_well, never_falsely_ready, next_release, whole
from tests.lab.slot import Slot

pytestmark = pytest.mark.lab


@pytest.fixture
def other(place: Place, tmp_path: Path) -> Place:
    """The second operator's folder."""
    return dataclasses.replace(place, folder=tmp_path / "bob").make()


async def test_the_second_operator_sends_it_back(slot: Slot, place: Place, other: Place) -> None:
    async with station(place) as ann, station(other, "bob") as bob:
        await asyncio.gather(ann.up(), bob.up())
        tx, following = await ann.deploy()
        await bob.until(lambda: bob.waits(tx))
        back = await bob.console.rollback(KEY)
        assert back.tx == tx, "a request to the transaction that runs, not a second writer"
        events = await following
        asked = next(event for event in events if event.kind == "request")
        assert (asked.data["request"], asked.data["who"], asked.data["state"]) == ("back", "bob@desk", "acknowledged")
        assert events[-1].data["state"] == "went_way_back"
        assert await bob.follow(tx) == events
        whole(slot, tx, events)
        assert "↻ going back" in ann.words()
        await ann.until(lambda: ann.state().text == "● ready")
        assert slot.serves() == "/models/way"
        assert "/models/way" in events[-1].data["serves"]
        serves_committed(slot, slot.code.state(slot.unit)["committed"])
        for here in (ann, bob):
            never_falsely_ready(here)


async def test_a_takeover_is_said_and_kept(slot: Slot, place: Place, other: Place) -> None:
    before = slot.code.state(slot.unit)["committed"]
    async with station(place) as ann, station(other, "bob") as bob:
        await asyncio.gather(ann.up(), bob.up())
        tx, following = await ann.deploy()
        release = next_release(slot)
        taken = (await bob.console.deploy(KEY, "quick", takeover=True, reason="mine is urgent")).tx
        mine = await following
        assert mine[-1].data["state"] == "went_back", "its recovery ended before the other began"
        assert mine[-1].data["release"] == before
        whole(slot, tx, mine)
        theirs = await bob.follow(taken)
        await ended_well(slot, bob, taken, theirs, release)
        said = [str(event.data.get("text")) for event in theirs if event.kind == "note"]
        assert any("ann@desk from desk-of-ann" in text for text in said), "whom it was taken from is kept"
        view = ann.service().tx
        assert view is not None
        assert (view.tx, view.who, view.reason) == (taken, "bob@desk", "mine is urgent")
        assert await ann.follow(taken) == theirs
        await ann.ready(release)
        for here in (ann, bob):
            never_falsely_ready(here)


async def test_the_second_deployment_is_refused_and_both_see_the_first(slot: Slot, place: Place, other: Place) -> None:
    release = next_release(slot)
    async with station(place) as ann, station(other, "bob") as bob:
        await asyncio.gather(ann.up(), bob.up())
        tx, following = await ann.deploy(reason="a bigger context", hold=4.0)
        await bob.until(lambda: bob.waits(tx))
        also = asyncio.ensure_future(bob.follow(tx))
        shell = asyncio.ensure_future(other.run("deploy", KEY, "--profile", "quick", "--json"))
        with pytest.raises(HostError) as caught:
            await bob.console.deploy(KEY, "quick")
        assert caught.value.code == 6
        named = ("ann@desk", "from desk-of-ann", "deploy qwen: a bigger context", "since ")
        assert [word for word in named if word not in caught.value.cause] == []
        await bob.until(lambda: not [word for word in named if word not in bob.service().lock], 5)
        code, out, err = await shell
        assert code == 6
        assert [word for word in named if word not in err] == []
        assert json.loads(out)["code"] == 6
        events = await following
        await ended_well(slot, ann, tx, events, release)
        assert await also == events
        await bob.ready(release)
        await bob.until(lambda: bob.service().lock == "")
        for here in (ann, bob):
            never_falsely_ready(here)
        assert [line["tx"] for line in slot.code.history(slot.unit)].count(tx) == 1
