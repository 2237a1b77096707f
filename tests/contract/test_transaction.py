"""Deployments on sandbox and lab hosts: ready means a token, a failure has its reason, one request brings it back."""

from __future__ import annotations

import json

import pytest

from tests.contract.conftest import transport_of
from tests.contract.messages import Messages
from tests.contract.slot import UNIT, Slot
from tests.lab.slot import MODEL


async def test_a_healthy_start_is_committed_after_a_token(slot: Slot) -> None:
    view = await slot.deploy("dflash-healthy-bars", speed=30)
    assert view.outcome == "committed", view
    assert view.attempt is not None
    assert [rung.name for rung in view.attempt.rungs if rung.state == "ok"] == [
        *("invocation", "process", "listener", "info", "token", "held")
    ]
    steps = {step.name: step.state for step in view.attempt.steps}
    assert steps == dict.fromkeys(("lock", "verify", "keep", "stop", "free", "start", "wait", "hold", "commit"), "ok")
    phases = {phase.name: phase.state for phase in view.attempt.phases}
    assert phases["weights"] == phases["kv cache"] == phases["graphs"] == "ok"
    assert slot.state()["committed"] == "r1"
    assert not slot.on_trial()
    assert await slot.served() == MODEL
    assert (await slot.host.exec(f"systemctl is-enabled {UNIT}")).strip() == "enabled"


@pytest.mark.parametrize(
    ("recording", "code", "evidence"),
    [
        ("memory-pool-too-small", "fatal-log", "Not enough memory"),
        ("unknown-flag", "exit-arguments", "unrecognized arguments"),
        ("port-in-use-never-exits", "cannot-bind", "address already in use"),
    ],
)
async def test_a_failure_goes_back_to_the_known_good(slot: Slot, recording: str, code: str, evidence: str) -> None:
    assert (await slot.deploy("dflash-healthy-bars", speed=200)).outcome == "committed"
    view = await slot.deploy(recording)
    assert view.outcome == "went_back", view
    trial, known_good = view.attempts
    assert trial.verdict is not None
    assert trial.verdict.code == code
    assert any(evidence in line for line in (trial.verdict.cause, *trial.verdict.evidence)), trial.verdict
    assert known_good.target == "r1"
    assert known_good.verdict is not None
    assert known_good.verdict.ok
    assert slot.state()["committed"] == "r1"
    assert not slot.on_trial()
    assert await slot.served() == MODEL


async def test_a_first_deploy_that_fails_leaves_nothing_running(slot: Slot) -> None:
    view = await slot.deploy("unknown-flag")
    assert view.outcome in ("stopped", "nothing_serves"), view
    assert await slot.active() in ("inactive", "failed")
    assert not slot.on_trial()
    assert not slot.host.path(f"/etc/systemd/system/{UNIT}").exists()


async def test_the_way_back_serves_after_a_failed_first_deploy(slot: Slot) -> None:
    way_back = slot.candidate("dflash-healthy-bars", speed=200, name="linear-wrapper")
    view = await slot.deploy("unknown-flag", way_back=way_back)
    assert view.outcome == "went_way_back", view
    assert view.attempts[-1].profile == "linear-wrapper"
    assert await slot.served() == MODEL


async def test_rollback_to_the_way_back(slot: Slot) -> None:
    way_back = slot.candidate("dflash-healthy-bars", speed=200, name="linear-wrapper")
    assert (await slot.deploy("dflash-healthy-bars", speed=200, way_back=way_back)).outcome == "committed"
    plan = {**slot.plan("dflash-healthy-bars").to_json(), "what": "rollback", "to": "way-back", "new": None}
    answer = await slot.ask("submit", plan)
    assert answer.get("ok"), answer
    view = await slot.outcome(str(answer["tx"]))
    assert view.outcome == "committed", view
    assert view.attempt is not None
    assert view.attempt.profile == "linear-wrapper"
    assert MODEL in view.serves
    assert not slot.on_trial()


async def test_a_request_in_the_middle_goes_back(slot: Slot) -> None:
    assert (await slot.deploy("dflash-healthy-bars", speed=200)).outcome == "committed"
    tx = await slot.submit(slot.plan("dflash-healthy-bars", speed=5))
    await slot.waiting(tx)
    answer = await slot.ask("request", {"unit": UNIT, "tx": tx, "request": "back", "who": "tester"})
    assert answer == {**answer, "ok": True, "acked": True}
    view = await slot.outcome(tx)
    assert view.outcome in ("went_back", "went_way_back"), view
    assert slot.state()["committed"] == "r1"
    assert await slot.served() == MODEL


async def test_a_second_deploy_is_refused_with_who_holds_the_lock(slot: Slot) -> None:
    tx = await slot.submit(slot.plan("dflash-healthy-bars", speed=40))
    await slot.waiting(tx)
    answer = await slot.ask("submit", slot.plan("unknown-flag").to_json())
    assert answer["ok"] is False
    assert answer["code"] == 6
    assert answer["holder"]["who"] == "tester"
    assert (await slot.outcome(tx)).outcome == "committed"


async def test_a_reboot_in_the_middle_boots_the_committed_release(slot: Slot) -> None:
    assert (await slot.deploy("dflash-healthy-bars", speed=200)).outcome == "committed"
    tx = await slot.submit(slot.plan("dflash-healthy-bars", speed=5))
    await slot.waiting(tx)
    await slot.host.reboot()
    again = transport_of(slot.host.spec)
    await again.connect()
    after = Slot(slot.host, again, slot.argv, slot.python, slot.replayer)
    watcher = await again.start(slot.argv("watch"))
    service = {"service": "qwen", "unit": UNIT, "port": slot.host.port, "gpus": [], "engine": "sglang"}
    await watcher.send(json.dumps({"v": 1, "services": [service], "unit_interval": 0.3}).encode())
    messages = Messages(watcher)
    await messages.until(lambda m: m.get("kind") == "tx" and m["event"].get("kind") == "outcome")
    listens = (m for m in messages.all if m.get("kind") == "ports" and m["ports"]["qwen"]["state"] == "ours")
    if next(listens, None) is None:
        await messages.until(lambda m: m.get("kind") == "ports" and m["ports"]["qwen"]["state"] == "ours")
    view = await after.view(tx)
    assert view is not None
    assert view.outcome == "cut"
    assert not after.on_trial()
    assert after.state()["committed"] == "r1"
    assert await after.served() == MODEL
    await watcher.close()
    await again.close()
