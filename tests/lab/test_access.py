"""Users and sessions as hosts grant them: sudo without a password, with one, none; MaxSessions 4."""

from __future__ import annotations

import asyncio

import pytest

from ddtree_console.services.errors import HostError
from tests.contract.consoles import as_user, fleet_of, screen
from tests.contract.real import LabSide
from tests.lab.fixtures import Hosts

pytestmark = pytest.mark.lab


async def test_sudo_without_a_password_may_deploy(hosts: Hosts) -> None:
    side = LabSide(hosts["h1"])
    async with screen(as_user(await fleet_of(side), "admin")) as see:
        assert (await see.up()).privileged
        assert (await see.outcome(await see.deploy("quick"))).data["state"] == "committed"
        assert (await see.until(lambda h: h.services[0].listener.state == "ours")).services[0].listener.pid > 0
    owners = {file.stat().st_uid for file in side.path("/var/lib/ddtree-console/bin").rglob("*")}
    assert owners == {0}


@pytest.mark.parametrize("user", ["pwops", "ops"])
async def test_without_sudo_it_is_read_only_and_says_why(hosts: Hosts, user: str) -> None:
    side = LabSide(hosts["h1"])
    async with screen(as_user(await fleet_of(side), user)) as see:
        host = await see.until(lambda h: h.link == "unprivileged" and h.services and h.services[0].unit)
        assert not host.privileged
        assert "sudo" in host.error
        assert "password" in host.error
        with pytest.raises(HostError) as caught:
            await see.deploy("quick")
        assert caught.value.code == 7
    assert not side.path("/var/lib/ddtree-console").exists()


async def test_four_sessions_are_enough(hosts: Hosts) -> None:
    host = hosts["h1"]
    host.sshd("MaxSessions 4")
    async with screen(await fleet_of(LabSide(host), fallback="quick")) as see:
        await see.up()
        assert (await see.outcome(await see.deploy("quick"))).data["state"] == "committed"
        # watcher, follower, and a submit that waits for the end of the countdown: one is left for all the rest
        assert (await see.console.preview_rollback(see.key)).refusal == ""
        answers = await asyncio.gather(*(see.console.history(see.key) for _ in range(6)))
        assert all(len(answer) == 1 for answer in answers)
        back = await see.console.rollback(see.key)
        assert (await see.outcome(back.tx)).data["state"] == "committed"
        assert see.host().link == "up"
