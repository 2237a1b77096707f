"""The plug-in on its way: carried before a unit that takes it is submitted, and only then."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from ddtree_console.domain.plan import plan_from_json
from ddtree_console.domain.spec import Profile, Secret, Speculative
from ddtree_console.hostside.carry import files_of
from ddtree_console.services.errors import HostError
from ddtree_console.transport import carried
from tests.services import test_console as base
from tests.services.doubles import ScriptedHost

TREE = Profile(
    name="tree",
    dialect="plugin-0.5.12",
    python="/opt/env/bin/python3",
    model="/models/m",
    flags={"attention-backend": "triton"},
    env={"PYTHONPATH": "/srv/theirs"},
    speculative=Speculative("ddtree", True, 15, "/models/d"),
)
FOLDER = f"/opt/ddtree-console/{carried.plugin().hash}"


def host(**answers: Any) -> ScriptedHost:
    made = ScriptedHost()
    made.answers["submit"] = lambda plan: [{"ok": True, "tx": "t1"}]
    made.answers["carry"] = answers.get("carry") or (lambda raw: [{"ok": True, "path": FOLDER}])
    return made


async def test_a_deployment_carries_it_before_it_submits() -> None:
    one = host()
    async with base.console(one) as console:
        await console.deploy("h1/s1", TREE)
    assert [name for name, _ in one.calls] == ["carry", "submit"]
    sent = one.calls[0][1]
    assert sent["hash"] == carried.plugin().hash
    assert files_of(base64.b64decode(sent["tar"])) == carried.plugin().files
    plan = plan_from_json(one.calls[1][1])
    assert plan.new is not None
    assert f'Environment="PYTHONPATH={FOLDER}:/srv/theirs"' in plan.new.unit_text
    assert (
        'Environment="DDTREE_MODE=shadow"' in plan.new.unit_text
        and "--speculative-algorithm DDTREE" in plan.new.unit_text
    )
    # the profile that is kept names no folder of this console
    assert plan.new.profile["env"] == {"PYTHONPATH": "/srv/theirs"}


async def test_other_profiles_carry_nothing() -> None:
    one = host()
    async with base.console(one) as console:
        await console.deploy("h1/s1", "shadow")
    assert [name for name, _ in one.calls] == ["submit"]


async def test_the_preview_shows_the_unit_as_it_will_be() -> None:
    one = host()
    one.answers["read"] = lambda _: [base.read_answer()]
    async with base.console(one) as console:
        seen = await console.preview("h1/s1", TREE)
    assert f"PYTHONPATH={FOLDER}:/srv/theirs" in seen.unit_text
    assert [name for name, _ in one.calls] == ["read"]


async def test_where_it_cannot_be_carried_nothing_is_deployed() -> None:
    one = host(carry=lambda raw: [{"ok": False, "code": 7, "cause": "/opt: No space left", "next": "make room"}])
    async with base.console(one) as console:
        with pytest.raises(HostError, match="No space left"):
            await console.deploy("h1/s1", TREE)
    assert [name for name, _ in one.calls] == ["carry"]


async def test_a_secret_path_is_refused_before_anything_is_sent() -> None:
    one = host()
    async with base.console(one) as console:
        secret = Profile(**{**vars(TREE), "env": {"PYTHONPATH": Secret("THEIRS")}})
        with pytest.raises(HostError, match="PYTHONPATH is the secret THEIRS"):
            await console.deploy("h1/s1", secret)
    assert one.calls == []


@pytest.mark.parametrize("full", [False, True])
async def test_going_back_to_it_never_waits_for_a_full_disk(full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(base.PROFILES, "linear", TREE)
    said = {"ok": False, "code": 7, "cause": "/opt: No space left"} if full else {"ok": True, "path": FOLDER}
    one = host(carry=lambda raw: [said])
    async with base.console(one) as console:
        await console.rollback("h1/s1")
    assert [name for name, _ in one.calls] == ["carry", "submit"]
    plan = plan_from_json(one.calls[1][1])
    # without the plug-in on the host its unit would not start: the host keeps an older way back itself
    assert (plan.way_back is None) is full
    assert full or FOLDER in plan.way_back.unit_text  # type: ignore[union-attr]
