"""The whole headless console against sandbox and lab: from a bare host to a served token and back."""

from __future__ import annotations

import time

import pytest

from ddtree_console.services.errors import HostError
from tests.contract.consoles import UNIT, fleet_of, screen
from tests.contract.real import RealHost
from tests.lab.slot import MODEL


async def test_a_bare_host_gets_the_host_code_and_a_first_state(real_host: RealHost) -> None:
    fleet = await fleet_of(real_host)
    async with screen(fleet) as see:
        host = await see.up()
        assert host.privileged
        assert host.boot
        assert host.services[0].unit is not None
        assert host.services[0].unit.load == "not-found"
    began = time.monotonic()
    async with screen(fleet) as see:
        await see.up()
        assert time.monotonic() - began < 3, "host code is there already: 1 s after login, and a busy machine"
    installed = real_host.path("/var/lib/ddtree-console/bin")
    assert len(list(installed.iterdir())) == 1
    for file in installed.rglob("*"):
        assert file.stat().st_mode & 0o022 == 0, "nobody else can change what root executes"


async def test_deploy_journal_history_and_rollback(real_host: RealHost) -> None:
    fleet = await fleet_of(real_host, fallback="quick")
    async with screen(fleet) as see:
        await see.up()
        done = await see.outcome(await see.deploy("healthy"))
        assert done.data["state"] == "committed", done
        host = await see.until(
            lambda h: h.services[0].release.committed == "r1" and h.services[0].listener.state == "ours"
        )
        assert host.services[0].unit is not None
        assert host.services[0].unit.active == "active"
        lines = [line.text for line in see.console.journal(see.key)]
        assert any("server is fired up" in line for line in lines), lines[-5:]
        host = await see.until(lambda h: h.services[0].http.status == 200)
        assert host.services[0].http.served_model == MODEL

        back = await see.console.rollback(see.key)
        done = await see.outcome(back.tx)
        assert done.data["state"] == "committed", done
        assert MODEL in done.data["serves"]
        history = await see.console.history(see.key)
        assert [(entry.what, entry.outcome) for entry in history] == [
            ("rollback", "committed"),
            ("deploy", "committed"),
        ]


async def test_a_failure_is_on_screen_with_its_reason(real_host: RealHost) -> None:
    async with screen(await fleet_of(real_host)) as see:
        await see.up()
        assert (await see.outcome(await see.deploy("quick"))).data["state"] == "committed"
        done = await see.outcome(await see.deploy("memory-pool-too-small"))
        assert done.data["state"] == "went_back", done
        host = await see.until(lambda h: h.services[0].tx and h.services[0].tx.outcome == "went_back")
        tx = host.services[0].tx
        assert tx is not None
        verdict = tx.attempts[0].verdict
        assert verdict is not None
        assert verdict.code == "fatal-log"
        assert "mem-fraction-static" in verdict.cause + verdict.remedy
        assert host.services[0].release.committed == "r1"


async def test_a_unit_edited_by_hand_is_refused(real_host: RealHost) -> None:
    async with screen(await fleet_of(real_host)) as see:
        await see.up()
        assert (await see.outcome(await see.deploy("quick"))).data["state"] == "committed"
        path = f"/etc/systemd/system/{UNIT}"
        real_host.write(path, real_host.path(path).read_text() + "# by hand\n")
        with pytest.raises(HostError) as caught:
            await see.deploy("quick")
        assert caught.value.code == 7
        assert UNIT in str(caught.value)
        done = await see.outcome(await see.deploy("quick", force=True, reason="mine"))
        assert done.data["state"] == "committed"


async def test_a_reboot_shows_and_the_console_comes_back(real_host: RealHost) -> None:
    async with screen(await fleet_of(real_host)) as see:
        before = (await see.up()).boot
        assert (await see.outcome(await see.deploy("quick"))).data["state"] == "committed"
        await see.deploy("slow")
        await see.waiting()
        await real_host.reboot()
        host = await see.until(lambda h: h.link == "up" and h.boot not in ("", before))
        host = await see.until(lambda h: h.services[0].tx and h.services[0].tx.outcome == "cut")
        host = await see.until(lambda h: h.services[0].listener.state == "ours")
        assert host.services[0].release.committed == "r1"
        assert host.services[0].release.trial == ""
