"""The console ends in the middle of a deployment: the host ends what it began, and any other console shows it."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.lab.faults_net.place import KEY, Place
from tests.lab.faults_net.station import station
from tests.lab.faults_net.truth import ended_well, never_falsely_ready, next_release, one_of_each
from tests.lab.slot import Slot

pytestmark = pytest.mark.lab


async def begun(process: asyncio.subprocess.Process) -> str:
    """What `deploy` said until it had started the unit."""
    assert process.stdout is not None
    said = b""
    async with asyncio.timeout(30):
        while " ✓ start".encode() not in said:
            line = await process.stdout.readline()
            assert line, said.decode()
            said += line
    return said.decode()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "ctrl-c"])
async def test_the_command_ends(slot: Slot, place: Place, how: signal.Signals) -> None:
    release = next_release(slot)
    process = await place.start("deploy", KEY, "--profile", "slow", "--reason", "in the middle")
    said = await begun(process)
    assert release in said
    process.send_signal(how)
    _, err = await asyncio.wait_for(process.communicate(), 10)
    async with station(place, "bob") as bob:
        await bob.up()
        await bob.until(lambda: bob.service().tx is not None)
        view = bob.service().tx
        assert view is not None
        tx = view.tx
        assert view.running, "in the middle"
        assert view.target == release
        assert view.reason == "in the middle"
        assert bob.state().word.startswith("starting")
        if how is signal.SIGINT:
            assert process.returncode == 130
            assert f"transaction {tx} goes on on the host" in err.decode()
            assert f"ddtree-console rollback {KEY}" in err.decode()
        else:
            assert process.returncode == -how
        await ended_well(slot, bob, tx, await bob.follow(tx), release)
        await one_of_each(slot, bob)
        kept = (await bob.console.history(KEY, 1))[0]
        assert (kept.tx, kept.outcome, kept.reason) == (tx, "committed", "in the middle")
        never_falsely_ready(bob)
