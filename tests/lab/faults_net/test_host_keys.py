"""A host key that is not the known one: refused with fingerprint and command, and never dialled again by itself."""

from __future__ import annotations

import asyncio
import re

import pytest

from ddtree_console.services.errors import HostError
from tests.lab.faults_net.place import KEY, Place
from tests.lab.faults_net.station import Station, station
from tests.lab.faults_net.test_lost import SESSIONS
from tests.lab.faults_net.truth import ended_well, never_falsely_ready, next_release, one_of_each
from tests.lab.slot import Slot

pytestmark = pytest.mark.lab


def fingerprint(slot: Slot) -> str:
    """SHA256:... of the key that the host has now."""
    return slot.code.host.exec("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key").stdout.split()[1]


async def refused(slot: Slot, here: Station, words: str) -> str:
    """It says why, and dials no more; the command that it names."""
    await here.until(lambda: here.host().link == "refused", 10)
    error, state = here.host().error, here.state()
    assert state.text == "? refused"
    assert state.detail == error
    assert words in error
    assert fingerprint(slot) in error
    await asyncio.sleep(0.3)  # for what sshd still writes of this attempt
    dialled = slot.code.host.journal(2000, "ssh")
    await asyncio.sleep(2)  # the longest pause before a first redial is a second
    assert slot.code.host.journal(2000, "ssh") == dialled
    assert here.host().link == "refused"
    found = re.search(r"on the host, then (.+)$", error)
    assert found, error
    return found[1]


async def accept_and_retry(slot: Slot, here: Station, command: str) -> None:
    """What a person does in another shell, and then here."""
    shell = await asyncio.create_subprocess_shell(command, stdin=asyncio.subprocess.DEVNULL)
    assert await shell.wait() == 0
    dialled = slot.code.host.journal(2000, "ssh")
    here.console.retry("h1")
    await here.until(lambda: here.host().link == "up", 10)
    await here.until(lambda: slot.code.host.journal(2000, "ssh") != dialled, 3)


async def test_it_changes_during_a_deployment(slot: Slot, place: Place) -> None:
    host, release = slot.code.host, next_release(slot)
    known = place.known_hosts.read_text()
    async with station(place) as ann:
        await ann.up()
        tx, following = await ann.deploy("brisk")
        mark = len(ann.seen)
        await asyncio.to_thread(host.new_host_key)
        await asyncio.to_thread(host.exec, SESSIONS)
        command = await refused(slot, ann, "the host key CHANGED: it shows ed25519 SHA256:")
        assert place.known_hosts.read_text() == known, "nothing is accepted silently"
        with pytest.raises(HostError, match="CHANGED"):
            await following
        with pytest.raises(HostError, match="CHANGED") as caught:
            await ann.console.deploy(KEY, "quick")
        assert caught.value.code == 5
        slot.outcome(tx)
        never_falsely_ready(ann, mark)
        code, out, err = await place.run("status", "h1/qwen")
        assert code == 5
        assert "refused" in out
        assert "ready" not in out
        assert fingerprint(slot) in out + err
        await accept_and_retry(slot, ann, command)
        await ended_well(slot, ann, tx, await ann.follow(tx), release)
        await one_of_each(slot, ann)


async def test_it_is_unknown(slot: Slot, place: Place) -> None:
    place.known_hosts.write_text("")
    async with station(place) as ann:
        command = await refused(slot, ann, "unknown host key: ed25519 SHA256:")
        assert place.known_hosts.read_text() == ""
        await accept_and_retry(slot, ann, command)
        await ann.up()
