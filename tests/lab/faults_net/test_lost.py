"""The connection is lost in the middle of a deployment: the host goes on, the console says so and comes back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from ddtree_console.transport import ssh
from tests.lab.faults_net.place import Place
from tests.lab.faults_net.station import Station, station
from tests.lab.faults_net.truth import ended_well, never_falsely_ready, next_release, one_of_each, whole_journal
from tests.lab.host import Host
from tests.lab.slot import Slot

pytestmark = pytest.mark.lab
SESSIONS = "pkill -KILL -f '[s]shd: root@'"
UNREACHABLE = re.compile(r"\? unreachable (\d+)s")


def ages(here: Station, since: int) -> list[int]:
    """The seconds that the row showed since that note while the host was out of reach."""
    return [int(found[1]) for text in here.words(since) if (found := UNREACHABLE.fullmatch(text))]


async def test_the_session_is_killed(slot: Slot, place: Place) -> None:
    release = next_release(slot)
    async with station(place) as ann:
        await ann.up()
        tx, following = await ann.deploy()
        mark = len(ann.seen)
        await asyncio.to_thread(slot.code.host.exec, SESSIONS)
        await ann.until(lambda: ann.host().link != "up", 2)
        assert await ann.until(lambda: ann.host().link == "up", 5) < 4
        view = ann.service().tx
        assert view is not None
        assert view.running, "it came back in the middle"
        await ended_well(slot, ann, tx, await following, release)
        never_falsely_ready(ann, mark)
        await whole_journal(slot, ann)
        await one_of_each(slot, ann)


@dataclass(frozen=True)
class Fault:
    """A way to be out of reach, and what the console must say of it."""

    give: Callable[[Host, bool], None]
    cause: str
    kills: bool = False
    """whether connections that are up have to be ended, too."""


def cut(host: Host, on: bool) -> None:
    (host.link_down if on else host.link_up)()


CABLE = Fault(cut, "(No route to host|connect timed out within 5 s)")
SILENCE = Fault(Host.drop, "connect timed out within 5 s")
FROZEN = Fault(Host.freeze_sshd, "connected, but sshd does not answer within 5 s", kills=True)
REFUSED = Fault(lambda host, on: host.refuse(22, on), "connection refused; is sshd running there\\?")


@pytest.mark.parametrize(
    ("first", "then"), [(CABLE, SILENCE), (FROZEN, REFUSED)], ids=["cable-then-silence", "frozen-then-refused"]
)
async def test_out_of_reach_until_the_end(slot: Slot, place: Place, first: Fault, then: Fault) -> None:
    host, release = slot.code.host, next_release(slot)

    def break_it() -> None:
        first.give(host, True)
        if first.kills:
            host.exec(SESSIONS)

    def says(fault: Fault) -> bool:
        return ann.state().word.startswith("unreachable") and bool(re.search(fault.cause, ann.state().detail))

    async with station(place) as ann:
        await ann.up()
        tx, following = await ann.deploy("brisk")
        mark = len(ann.seen)
        await asyncio.to_thread(break_it)
        assert await ann.until(lambda: ann.host().link != "up", 5) < 3, "three keepalives of half a second"
        await ann.until(lambda: says(first), 10)
        await asyncio.to_thread(then.give, host, True)
        await asyncio.to_thread(first.give, host, False)
        await ann.until(lambda: says(then), 15)
        slot.outcome(tx)
        view = ann.service().tx
        assert view is not None
        assert view.running, "what the console does not know it does not say"
        assert len(set(ages(ann, mark))) > 3, "the age is seen to grow"
        await asyncio.to_thread(then.give, host, False)
        await ann.until(lambda: ann.host().link == "up", 15)
        await ended_well(slot, ann, tx, await following, release)
        assert ages(ann, mark) == sorted(ages(ann, mark)), "an age only grows"
        never_falsely_ready(ann, mark)
        await whole_journal(slot, ann)
        await one_of_each(slot, ann)


def test_silence_is_noticed_within_twenty_seconds() -> None:
    assert 15 <= ssh.KEEPALIVE * ssh.KEEPALIVE_COUNT <= ssh.KEEPALIVE * (ssh.KEEPALIVE_COUNT + 1) <= 20
