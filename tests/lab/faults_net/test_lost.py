"""The connection is lost in the middle of a deployment: the host goes on, the console says so and comes back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

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
        one_of_each(slot)


def freeze(host: Host, on: bool) -> None:
    host.freeze_sshd(on)
    if on:
        host.exec(SESSIONS)


def refuse(host: Host, on: bool) -> None:
    host.refuse(22, on)
    if on:
        host.exec(SESSIONS)


def cut(host: Host, on: bool) -> None:
    (host.link_down if on else host.link_up)()


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (Host.drop, "connect timed out within 5 s"),
        (cut, "(No route to host|connect timed out within 5 s)"),
        (freeze, "connected, but sshd does not answer within 5 s"),
        (refuse, "connection refused; is sshd running there\\?"),
    ],
    ids=["silence", "cable", "frozen", "refused"],
)
async def test_out_of_reach_until_the_end(
    slot: Slot, place: Place, fault: Callable[[Host, bool], None], cause: str
) -> None:
    host, release = slot.code.host, next_release(slot)
    async with station(place) as ann:
        await ann.up()
        tx, following = await ann.deploy("brisk")
        mark = len(ann.seen)
        await asyncio.to_thread(fault, host, True)
        noticed = await ann.until(lambda: ann.host().link != "up", 5)
        assert noticed < 3, "three keepalives of half a second"
        await ann.until(lambda: re.search(cause, ann.host().error), 8)
        assert ann.state().word.startswith("unreachable")
        assert re.search(cause, ann.state().detail)
        slot.outcome(tx)
        await ann.until(lambda: len(set(ages(ann, mark))) > 3, 8)
        view = ann.service().tx
        assert view is not None
        assert view.running, "what the console does not know it does not say"
        never_falsely_ready(ann, mark)
        await asyncio.to_thread(fault, host, False)
        await ann.until(lambda: ann.host().link == "up", 15)
        await ended_well(slot, ann, tx, await following, release)
        assert ages(ann, mark) == sorted(ages(ann, mark)), "an age only grows"
        never_falsely_ready(ann, mark)
        await whole_journal(slot, ann)
        one_of_each(slot)


def test_silence_is_noticed_within_twenty_seconds() -> None:
    assert 15 <= ssh.KEEPALIVE * ssh.KEEPALIVE_COUNT <= ssh.KEEPALIVE * (ssh.KEEPALIVE_COUNT + 1) <= 20
