"""Requests to a running transaction, two operators, refusals: what submit and request answer."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from ddtree_console.demo.host import SandboxHost
from ddtree_console.domain.txview import TxView
from ddtree_console.hostside import locks
from tests.hostside.tx.slots import Slot


def waiting(view: TxView) -> bool:
    """Whether the trial was started."""
    return view.attempt is not None and any(step.name == "wait" for step in view.attempt.steps)


def holding(view: TxView) -> bool:
    """Whether a token was generated."""
    return view.attempt is not None and any(step.name == "hold" for step in view.attempt.steps)


async def test_back_during_a_deployment_goes_to_the_way_back(slot: Slot) -> None:
    way_back = slot.candidate("wrapper", "ok")
    await slot.deploy("one", "ok", way_back=way_back)
    tx = await slot.submit(slot.plan("two", "deaf", way_back=way_back, deadline=60.0))
    await slot.until(tx, waiting)
    assert (await slot.request(tx, "confirm"))["ok"] is False
    deadline = (await slot.until(tx, waiting)).deadline
    assert await slot.request(tx, "extend") == {"ok": True, "acked": True}
    assert ((await slot.until(tx, lambda view: "extend" in view.requests)).deadline or 0) > (deadline or 0) + 25
    assert await slot.request(tx, "back") == {"ok": True, "acked": True}
    view = await slot.outcome(tx)
    assert (view.outcome, await slot.serves(), slot.trial()) == ("went_way_back", "wrapper", False)
    assert view.attempts[0].verdict is not None
    assert view.attempts[0].verdict.code == "requested"
    late = await slot.request(tx, "back")
    assert (late["ok"], late["code"]) == (False, 7)


async def test_back_to_the_known_good_and_abandon_and_confirm(host: SandboxHost) -> None:
    one, two, three = (Slot(host, name) for name in ("a", "b", "c"))
    await asyncio.gather(*(slot.deploy("one", "ok") for slot in (one, two, three)))

    async def known_good() -> None:
        tx = await one.submit(one.plan("two", "deaf", way_back=one.candidate("wrapper", "ok")))
        await one.until(tx, waiting)
        await one.request(tx, "back", to="known-good")
        view = await one.outcome(tx)
        assert (view.outcome, await one.serves()) == ("went_back", "one")

    async def abandoned() -> None:
        tx = await two.submit(two.plan("two", "deaf"))
        await two.until(tx, waiting)
        await two.request(tx, "abandon")
        view = await two.outcome(tx)
        assert (view.outcome, two.trial(), two.active()) == ("left", True, "active")

    async def confirmed() -> None:
        tx = await three.submit(three.plan("two", "ok", hold=600.0))
        await three.until(tx, holding)
        assert await three.request(tx, "confirm") == {"ok": True, "acked": True}
        view = await three.outcome(tx)
        assert (view.outcome, await three.serves()) == ("committed", "two")

    await asyncio.gather(known_good(), abandoned(), confirmed())


async def test_a_transaction_that_does_not_answer_is_killed_and_recovery_obeys(slot: Slot) -> None:
    await slot.deploy("one", "ok", way_back=slot.candidate("wrapper", "ok"))
    tx = await slot.submit(slot.plan("two", "deaf"))
    await slot.until(tx, waiting)
    os.kill(slot.host.machine.units[f"ddtree-tx-{slot.unit}"].main_pid, signal.SIGSTOP)
    assert await slot.request(tx, "extend") == {"ok": True, "acked": False}
    assert await slot.request(tx, "back", to="way-back") == {"ok": True, "acked": False, "killed": True}
    view = await slot.outcome(tx)
    assert (view.outcome, await slot.serves(), slot.trial()) == ("went_way_back", "wrapper", False)


async def test_two_operators_the_second_sees_who_and_may_take_over(slot: Slot) -> None:
    await slot.deploy("one", "ok")
    first = await slot.submit(slot.plan("two", "deaf", reason="new draft"))
    await slot.until(first, waiting)
    answer = await slot.command("submit", slot.plan("three", "ok", who="bo").to_json())
    assert answer["code"] == 6
    assert "ana from desk: deploy slot: new draft" in answer["cause"]
    assert answer["holder"]["tx"] == first
    held = locks.holders(slot.roots)[slot.unit]
    assert held is not None
    assert held["who"] == "ana"
    second = await slot.outcome(await slot.submit(slot.plan("three", "ok", who="bo", takeover=True)))
    assert (await slot.outcome(first)).outcome == "went_back"
    assert (second.outcome, await slot.serves()) == ("committed", "three")
    assert any("taken over" in note and "ana" in note for note in second.notes)
    assert set(locks.holders(slot.roots).values()) == {None}


async def test_a_shared_gpu_locks_both_slots(host: SandboxHost) -> None:
    a, b = Slot(host, "a"), Slot(host, "b")
    await b.deploy("one", "ok", gpus=(0,))
    tx = await a.submit(a.plan("two", "deaf", gpus=(0,)))
    await a.until(tx, waiting)
    answer = await b.command("submit", b.plan("two", "ok", gpus=(0,), shared_gpu_units=(a.unit,)).to_json())
    assert (answer["code"], "gpu-0" in answer["cause"]) == (6, True)
    await a.request(tx, "back")
    assert (await a.outcome(tx)).outcome == "stopped"


async def test_an_edited_unit_or_drop_in_is_refused_until_forced_with_a_reason(slot: Slot) -> None:
    await slot.deploy("one", "ok")
    before = slot.host.machine.units[slot.unit].invocation
    drop_in = Path(slot.roots.etc, "systemd/system", f"{slot.unit}.d/limits.conf")
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nLimitNOFILE=4096\n")
    plan = slot.plan("two", "ok")
    answer = await slot.command("submit", plan.to_json())
    assert (answer["code"], str(drop_in) in answer["cause"]) == (7, True)
    assert slot.host.machine.units[slot.unit].invocation == before
    answer = await slot.command("submit", {**plan.to_json(), "force": True})
    assert answer["code"] == 2
    view = await slot.deploy("two", "ok", force=True, reason="limits are meant")
    assert (view.outcome, view.target, slot.state().committed) == ("committed", "r2", "r2")
    assert (await slot.deploy("three", "ok")).outcome == "committed"


async def test_a_unit_never_adopted_is_refused_and_adopting_it_makes_it_the_known_good(slot: Slot) -> None:
    slot.roots.committed(slot.unit).write_text(slot.text("old", "ok"))
    await slot.host.exec("systemctl daemon-reload")
    await slot.host.exec(f"systemctl start {slot.unit}")
    answer = await slot.command("submit", slot.plan("two", "ok").to_json())
    assert (answer["code"], "never adopted" in answer["cause"]) == (7, True)
    asked = {"unit": slot.unit, "profile": {"verbatim": "x"}, "profile_name": "old", "engine": "sglang", "who": "ana"}
    assert await slot.command("adopt", asked) == {"ok": True, "release": "r1"}
    view = await slot.deploy("two", "oom")
    assert (view.outcome, view.source, await slot.serves()) == ("went_back", "r1", "old")


async def test_a_taken_port_and_a_bad_unit_are_refused_before_anything_stops(slot: Slot) -> None:
    answer = await slot.command("submit", slot.plan("two", "ok", more="Nonsense==\nExecStrat=/x").to_json())
    assert (answer["code"], "systemd-analyze" in answer["cause"]) == (7, True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", slot.port))
        taken.listen()
        answer = await slot.command("submit", slot.plan("two", "ok").to_json())
    assert (answer["code"], f"port {slot.port} is held by pid {os.getpid()}" in answer["cause"]) == (7, True)
    assert slot.history() == []


async def test_a_foreign_listener_ends_the_wait_within_a_second(slot: Slot) -> None:
    await slot.deploy("one", "ok")
    tx = await slot.submit(slot.plan("two", "slow=30"))
    await slot.until(tx, waiting)
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", slot.port)
    async with server:
        view = await slot.until(tx, lambda view: view.attempts[0].verdict, 3)
    assert view.attempts[0].verdict is not None
    assert view.attempts[0].verdict.code == "foreign-listener"
    assert (await slot.outcome(tx)).outcome == "went_back"


async def test_the_way_back_may_be_another_slot(host: SandboxHost) -> None:
    a, wrapper = Slot(host, "a"), Slot(host, "wrapper")
    await asyncio.gather(a.deploy("one", "selfkill"), wrapper.deploy("linear", "ok"))
    plan = a.rollback("way-back", way_back_service=wrapper.unit, way_back_service_port=wrapper.port)
    view = await a.outcome(await a.submit(plan))
    assert view.outcome == "committed", view
    assert view.serves == f"linear (sglang) on port {wrapper.port}"
    assert (a.active(), wrapper.active()) == ("inactive", "active")
    assert view.attempts[-1].phases == (), "what a running server logs is no phase of a start"
    wants = Path(a.roots.etc, "systemd/system/multi-user.target.wants")
    assert sorted(path.name for path in wants.iterdir()) == [wrapper.unit]


@pytest.mark.parametrize("full", ["var", "etc"])
async def test_a_disk_that_refuses_cannot_block_going_back(slot: Slot, full: str) -> None:
    await slot.deploy("one", "ok", way_back=slot.candidate("wrapper", "ok"))
    (slot.tools / f"full-{slot.unit}").write_text(getattr(slot.roots, full))
    view = await slot.outcome(await slot.submit(slot.rollback("way-back")))
    assert (view.outcome, await slot.serves(), slot.trial()) == ("serving_uncommitted", "wrapper", True)
    assert "a reboot starts r1" in view.detail
    answer = await slot.submit(slot.plan("two", "ok")) if full == "etc" else ""
    if answer:
        assert (await slot.outcome(answer)).outcome == "serving_uncommitted"
    (slot.tools / f"full-{slot.unit}").unlink()
    view = await slot.outcome(await slot.submit(slot.rollback("r1")))
    assert (view.outcome, await slot.serves(), slot.trial()) == ("committed", "one", False)
    assert [line["outcome"] for line in slot.history()][:2] == ["committed", "serving_uncommitted"]
