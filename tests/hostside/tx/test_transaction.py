"""Deployments and rollbacks end to end, on a sandbox host."""

from __future__ import annotations

from ddtree_console.domain.txview import TxView
from tests.hostside.tx.slots import Slot


def steps(view: TxView, attempt: int = 0) -> list[str]:
    """The finished steps of an attempt."""
    return [step.name for step in view.attempts[attempt].steps if step.state == "ok"]


async def test_a_first_deploy_is_committed_only_after_a_token(slot: Slot) -> None:
    view = await slot.deploy("one", "ok")
    assert view.outcome == "committed", view
    assert steps(view) == ["lock", "verify", "keep", "stop", "free", "start", "wait", "hold", "commit"]
    assert [rung.name for rung in view.attempts[0].rungs if rung.state == "ok"] == [
        "invocation",
        "process",
        "listener",
        "info",
        "token",
        "held",
    ]
    assert view.serves == f"one (sglang) on port {slot.port}"
    assert (slot.state().committed, slot.state().known_good, slot.trial()) == ("r1", "r1", False)
    assert slot.roots.committed(slot.unit).read_text() == slot.text("one", "ok")
    line = slot.history()[-1]
    assert (line["outcome"], line["target"], line["who"], line["furthest"]) == ("committed", "r1", "ana", "held")
    again = await slot.deploy("two", "ok")
    assert again.outcome == "committed"
    assert again.source == "r1"
    assert all(rung.last_good is not None for rung in again.attempts[0].rungs)
    assert await slot.serves() == "two"


async def test_a_failed_deploy_goes_back_to_the_known_good(slot: Slot) -> None:
    await slot.deploy("one", "ok")
    view = await slot.deploy("two", "oom")
    assert view.outcome == "went_back"
    first = view.attempts[0].verdict
    assert first is not None
    assert "Not enough memory" in first.cause
    assert "mem-fraction" in first.remedy
    assert first.exit["status"] == 1
    assert (slot.state().committed, slot.trial(), await slot.serves()) == ("r1", False, "one")
    assert slot.history()[-1]["cause"] == first.cause


async def test_a_first_deploy_that_fails_goes_to_its_way_back_or_stops(slot: Slot) -> None:
    view = await slot.deploy("one", "oom")
    assert view.outcome == "stopped"
    assert (slot.trial(), slot.active(), slot.state().committed) == (False, "failed", "")
    view = await slot.deploy("two", "oom", way_back=slot.candidate("wrapper", "ok"))
    assert view.outcome == "went_way_back"
    assert (await slot.serves(), slot.trial()) == ("wrapper", False)
    assert slot.state().committed == view.attempts[1].target


async def test_when_everything_fails_the_unit_is_stopped_and_nothing_more_happens(slot: Slot) -> None:
    await slot.deploy("one", "ok")
    slot.roots.committed(slot.unit).write_text(slot.text("one", "oom"))
    view = await slot.deploy("two", "oom", way_back=slot.candidate("wrapper", "oom"), force=True, reason="test")
    assert view.outcome == "nothing_serves"
    assert [attempt.profile for attempt in view.attempts] == ["two", "as it was", "wrapper"]
    assert (slot.trial(), slot.active()) == (False, "failed")


async def test_on_failure_stop_and_leave(slot: Slot) -> None:
    await slot.deploy("one", "ok")
    view = await slot.deploy("two", "oom", on_failure="stop")
    assert (view.outcome, slot.trial(), slot.active()) == ("stopped", False, "failed")
    view = await slot.deploy("three", "oom", on_failure="leave")
    assert (view.outcome, slot.trial()) == ("left", True)
    assert slot.state().committed == "r1"


async def test_rollback_to_the_way_back_and_to_what_was_before(slot: Slot) -> None:
    wrapper = slot.candidate("wrapper", "ok")
    await slot.deploy("one", "ok", way_back=wrapper)
    await slot.deploy("two", "ok", way_back=wrapper)
    back = await slot.outcome(await slot.submit(slot.rollback("way-back")))
    assert (back.outcome, await slot.serves()) == ("committed", "wrapper")
    assert "verify" not in steps(back)
    assert slot.state().commits == ("r1", "r2", "r3")
    again = await slot.outcome(await slot.submit(slot.rollback("known-good")))
    assert (again.outcome, again.target, await slot.serves()) == ("committed", "r2", "two")
    named = await slot.outcome(await slot.submit(slot.rollback("r1")))
    assert (named.outcome, await slot.serves()) == ("committed", "one")
    # the way back is found kept: it gets no second number
    await slot.outcome(await slot.submit(slot.rollback("way-back")))
    assert slot.state().committed == "r3"


async def test_rollback_kills_a_server_that_ignores_sigterm_after_five_seconds(slot: Slot) -> None:
    await slot.deploy("one", "stubborn", way_back=slot.candidate("wrapper", "ok"))
    view = await slot.outcome(await slot.submit(slot.rollback("way-back")))
    stop = next(step for step in view.attempts[0].steps if step.name == "stop")
    assert view.outcome == "committed"
    assert stop.detail == "SIGKILL"
    assert 4.9 < (stop.secs or 0) < 8


async def test_a_rollback_to_nothing_touches_nothing(slot: Slot) -> None:
    await slot.deploy("one", "ok")
    before = slot.host.machine.units[slot.unit].invocation
    view = await slot.outcome(await slot.submit(slot.rollback("way-back")))
    assert view.outcome == "refused"
    assert slot.host.machine.units[slot.unit].invocation == before


async def test_hold_is_lost_when_it_crashes_after_its_first_token(slot: Slot) -> None:
    await slot.deploy("one", "ok")
    view = await slot.deploy("two", "crash=1", hold=8)
    verdict = view.attempts[0].verdict
    assert view.outcome == "went_back"
    assert verdict is not None
    assert verdict.code == "hold-lost"
    assert await slot.serves() == "one"


async def test_drift_is_told_and_a_must_fails_the_deployment(slot: Slot) -> None:
    await slot.deploy("one", "ok", set_flags={"context-length": 8192, "mem-fraction-static": 0.5})
    assert slot.state().committed == "r1"
    view = await slot.deploy("two", "ok", set_flags={"context-length": 8192}, must=("context-length",))
    assert set(view.drift) == {("context-length", "8192", "4096")}
    assert view.outcome == "went_back"
    assert view.attempts[0].verdict is not None
    assert view.attempts[0].verdict.code == "must-drift"


async def test_a_server_without_tokens_is_not_ready(slot: Slot) -> None:
    view = await slot.deploy("one", "mute")
    assert view.outcome == "stopped"
    assert view.attempts[0].verdict is not None
    assert "POST /generate gave 500" in view.attempts[0].verdict.cause


async def test_a_server_with_a_key_is_asked_with_it_and_the_key_is_nowhere_of_ours(slot: Slot) -> None:
    canary = "canary-7d1f"
    view = await slot.deploy("one", f"key={canary}", f"--api-key={canary}")
    assert view.outcome == "committed"
    var, run = slot.roots.kept(slot.unit), slot.roots.live(slot.unit)
    told = [*var.glob("events/*"), *var.glob("*.json*"), run / "mark.json"]
    assert told
    for path in told:
        assert canary not in path.read_text(), path
    assert canary not in "".join(slot.host.journal(f"ddtree-tx-{slot.unit}"))


async def test_secrets_come_from_the_hosts_own_file(slot: Slot) -> None:
    more = "EnvironmentFile=@DDTREE_SECRET_ENV@\n"
    answer = await slot.command("submit", slot.plan("one", "ok", more=more, secrets={"HF_TOKEN": "hub"}).to_json())
    assert (answer["code"], "hub" in answer["cause"]) == (7, True)
    slot.roots.secrets().parent.mkdir(parents=True, exist_ok=True)
    slot.roots.secrets().write_text("hub=canary-91\n")
    view = await slot.deploy("one", "ok", more=more, secrets={"HF_TOKEN": "hub"})
    assert view.outcome == "committed"
    env = slot.roots.kept(slot.unit) / "releases/r1/secret.env"
    assert (env.read_text(), env.stat().st_mode & 0o777) == ("HF_TOKEN=canary-91\n", 0o600)
    assert str(env) in slot.roots.committed(slot.unit).read_text()
    assert "canary" not in "".join(event.line() for event in slot.events(view.tx))
