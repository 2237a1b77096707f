"""A host fails in the middle of a deployment: the end has a name, a committed release serves, nothing false is kept."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab.faults import SLOW, serves_committed, went_back
from tests.lab.fixtures import Hosts
from tests.lab.hostcode import HostCode
from tests.lab.slot import Slot

pytestmark = pytest.mark.lab


@pytest.fixture
def slot(hosts: Hosts) -> Slot:
    """A slot on a new host, whose r1 is committed and serves."""
    slot = Slot(HostCode(hosts["h1"])).give_replayer()
    assert slot.commit_healthy() == "r1"
    return slot


def is_cut(message: dict[str, Any]) -> bool:
    """The watcher's news that an attempt ended with a boot."""
    event = message.get("event") or {}
    return message.get("kind") == "tx" and event.get("kind") == "outcome" and event.get("state") == "cut"


def closed_as_cut(slot: Slot, tx: str) -> None:
    """The next watcher closes the attempt that a boot has cut off, once and for all."""
    slot.code.watch(slot.unit, is_cut)
    view = slot.code.view(slot.unit, tx)
    assert view is not None
    assert view.outcome == "cut"
    assert [line["outcome"] for line in slot.code.history(slot.unit)] == ["committed", "cut"]


def test_reboot(slot: Slot) -> None:
    tx = slot.deploy("dflash-healthy-bars", speed=SLOW)
    slot.waiting(tx)
    slot.code.host.reboot()
    serves_committed(slot)
    closed_as_cut(slot, tx)
    assert slot.commit_healthy() == "r3"


def test_power_loss(slot: Slot) -> None:
    tx = slot.deploy("dflash-healthy-bars", speed=SLOW)
    slot.waiting(tx)
    slot.code.host.crash()
    slot.code.host.power_on()
    serves_committed(slot)
    closed_as_cut(slot, tx)
    assert slot.commit_healthy() == "r3"


def test_power_loss_after_the_commit_boots_the_new_release(slot: Slot) -> None:
    assert slot.commit_healthy() == "r2"
    slot.code.host.crash()
    slot.code.host.power_on()
    serves_committed(slot, "r2")


def test_the_transaction_is_killed(slot: Slot) -> None:
    tx = slot.deploy("dflash-healthy-bars", speed=SLOW)
    slot.waiting(tx)
    slot.code.host.exec(f"systemctl kill -s KILL --kill-who=all ddtree-tx-{slot.unit}")
    view = slot.outcome(tx)
    assert view.outcome == "went_back"
    assert any("killed" in attempt.why for attempt in view.attempts)
    serves_committed(slot)


def test_the_transaction_is_stopped_by_hand(slot: Slot) -> None:
    tx = slot.deploy("dflash-healthy-bars", speed=SLOW)
    slot.waiting(tx)
    slot.code.host.exec(f"systemctl stop ddtree-tx-{slot.unit}", timeout=60)
    assert slot.outcome(tx).outcome == "went_back"
    serves_committed(slot)


def test_full_disk_before_the_commit(slot: Slot) -> None:
    tx = slot.deploy("dflash-healthy-bars")
    slot.waiting(tx)
    slot.code.host.fill_disk()
    end = "systemctl show -p ActiveState ddtree-tx-" + slot.unit
    while slot.code.host.exec(end).stdout != "ActiveState=inactive\n":
        slot.serves_soon(0.2)
    assert slot.code.trial(slot.unit), "it serves from /run, and a reboot starts r1"
    assert slot.serves()
    assert slot.code.state(slot.unit)["committed"] == "r1"
    assert "serving_uncommitted" in slot.code.host.journal(400, f"ddtree-tx-{slot.unit}")
    slot.code.host.free_disk()
    slot.code.host.reboot()
    serves_committed(slot)


def test_full_disk_does_not_stop_a_way_back(slot: Slot) -> None:
    tx = slot.deploy("unknown-flag", speed=SLOW)
    slot.waiting(tx)
    slot.code.host.fill_disk()
    end = "systemctl show -p ActiveState ddtree-tx-" + slot.unit
    while slot.code.host.exec(end).stdout != "ActiveState=inactive\n":
        slot.serves_soon(0.2)
    slot.code.host.free_disk()
    serves_committed(slot)
    assert "went_back" in slot.code.host.journal(400, f"ddtree-tx-{slot.unit}")


def test_read_only_etc_before_the_commit(slot: Slot) -> None:
    tx = slot.deploy("dflash-healthy-bars")
    slot.waiting(tx)
    slot.code.host.read_only("/etc")
    view = slot.outcome(tx)
    assert view.outcome == "serving_uncommitted", view
    assert "r1" in view.detail, "it says what a reboot starts"
    assert slot.serves()
    assert slot.code.state(slot.unit)["committed"] == "r1"
    slot.code.host.reboot()  # the mount is gone with it
    serves_committed(slot)


def test_read_only_etc_does_not_stop_a_way_back(slot: Slot) -> None:
    tx = slot.deploy("unknown-flag", speed=SLOW)
    slot.waiting(tx)
    slot.code.host.read_only("/etc")
    view = slot.outcome(tx)
    slot.code.host.read_only("/etc", False)
    went_back(slot, view, "exit-arguments")


@pytest.mark.parametrize("seconds", [7200, -7200])
def test_clock_jump(hosts: Hosts, seconds: int) -> None:
    host = hosts["h1"]
    host.skew(0)
    host.reboot()  # PID 1 and journald follow every jump from now on
    slot = Slot(HostCode(host)).give_replayer()
    assert slot.commit_healthy() == "r1"
    tx = slot.deploy("dflash-healthy-bars")
    slot.waiting(tx)
    host.skew(seconds)
    view = slot.outcome(tx)
    assert view.outcome == "committed", view
    assert view.attempt is not None
    assert 2 < view.t - view.began < 30, "boottime, not the wall clock"
    assert all((rung.secs or 0) < 30 for rung in view.attempt.rungs)
    assert slot.code.history(slot.unit)[-1]["seconds"] < 30
    serves_committed(slot, "r2")


def test_gpu_lost(slot: Slot) -> None:
    gpus = "driver 550.54.15\ncount 1\n0.name A6000\n0.uuid GPU-1\n0.total 51000000000\n0.used 1000000\n"
    slot.code.host.nvml(gpus)
    tx = slot.deploy("dflash-healthy-bars", gpus=(0,))
    slot.waiting(tx)
    slot.code.host.nvml(gpus + "0.err 15\n")
    view = slot.outcome(tx)
    assert view.outcome == "committed", "the server still answers: only the panel says that the GPU is lost"
    report = slot.code.watch(slot.unit, lambda message: message.get("kind") == "gpus")
    assert "lost" in report["gpus"][0]["fault"].lower()
    serves_committed(slot, "r2")
