"""`check`, `check --against` and what `deploy` says of failed checks, against a scripted host."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ddtree_console.cli import live, main
from tests.cli.scripted import TellingHost, install, transaction, units

HOSTILE = "\x1b]52;c;ZXZpbA==\x07\x1b[31m[bold]\u202eevil\x9b31m"
FAIL = {
    "name": "cuda abi",
    "state": "fail",
    "evidence": "torch 12.8, kernels 13",
    "remedy": "install kernels for 12.8",
    "service": "s1",
}
OK = {"name": "port", "state": "ok", "evidence": "free", "service": "s1"}


def facts(**packages: str) -> dict[str, Any]:
    env = {"packages": packages, "python": "3.12.3", "needs": {"orjson": ""}, "cuda": {"cuda": "12.8"}}
    return {"facts": {"environment s1": env, "gpus": {"driver": "580.1"}}}


@pytest.fixture(autouse=True)
def _restore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "load_fleet", live.load_fleet)
    monkeypatch.setattr(live, "build", live.build)


def run(capsys: pytest.CaptureFixture[str], host: TellingHost, *argv: str) -> tuple[int, str, str]:
    install(host)
    code = main(argv)
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def host_with(*checks: dict[str, Any]) -> TellingHost:
    host = TellingHost(units(), tells=transaction("committed"))
    host.answers["check"] = lambda p: list(checks)
    return host


def test_a_refused_deployment_tells_each_check_and_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    host = host_with(FAIL, OK)
    code, out, err = run(capsys, host, "deploy", "h1/s1")
    assert (code, out) == (7, "")
    assert "✖ cuda abi: torch 12.8, kernels 13" in err
    assert "install kernels for 12.8" in err
    assert "--force --reason" in err
    assert [command for command, _ in host.calls] == ["check"]
    code, out, _ = run(capsys, host, "deploy", "h1/s1", "--json")
    told = json.loads(out)
    assert (code, told["ok"], told["code"]) == (7, False, 7)
    assert told["checks"][0]["remedy"] == "install kernels for 12.8"


def test_force_needs_a_reason_which_travels_with_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    host = host_with(FAIL)
    assert run(capsys, host, "deploy", "h1/s1", "--force")[0] == 2
    assert host.calls == []
    assert run(capsys, host, "deploy", "h1/s1", "--force", "--reason", "kernels are on their way")[0] == 0
    plan = next(payload for command, payload in host.calls if command == "submit")
    assert plan["reason"] == "kernels are on their way"


def test_a_named_profile_is_the_one_that_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    host = host_with(OK)
    code, out, _ = run(capsys, host, "check", "h1/s1", "--profile", "linear", "--json")
    assert (code, json.loads(out)["ok"]) == (0, True)
    assert host.calls[0][1]["services"][0]["profile"] == "linear"
    assert run(capsys, host, "check", "h1/s1", "--profile", "none")[0] == 2


def test_two_environments(capsys: pytest.CaptureFixture[str]) -> None:
    sides = [facts(torch="2.9.1+cu128", same="1"), facts(torch="2.9.1+cu130", same="1", orjson="3.10")]
    host = host_with()
    host.answers["check"] = lambda p: [sides.pop(0)]
    code, out, _ = run(capsys, host, "check", "h1", "--against", "h1/s1")
    assert code == 0
    torch = next(line for line in out.splitlines() if " torch " in line)
    assert torch.split() == ["≠", "torch", "2.9.1+cu128", "2.9.1+cu130"]
    assert "h1/s1 has what h1/s1 needs: orjson 3.10" in out
    assert "1 packages are the same" in out
    assert not any("same  " in line for line in out.splitlines())
    sides = [facts(torch="1"), facts(torch=HOSTILE)]
    code, out, _ = run(capsys, host, "check", "h1", "--against", "h1/s1", "--json")
    rows = {r["name"]: r for r in json.loads(out)["rows"]}
    assert (rows["torch"]["differs"], rows["driver"]["a"]) == (True, "580.1")


def test_hostile_text_in_a_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    host = host_with()
    host.answers["check"] = lambda p: [facts(**{HOSTILE: HOSTILE})]
    host.answers["inspect"] = lambda p: [{"patched": [HOSTILE], "problems": [HOSTILE]}]
    _, out, err = run(capsys, host, "check", "h1", "--against", "h1", "--all")
    assert "evil" in out
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(out + err)


@pytest.mark.parametrize("argv", [("check", "h1", "--against", "nohost"), ("check", "h1", "--against", "h1/none")])
def test_an_unknown_side_names_those_that_are_known(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]) -> None:
    code, _, err = run(capsys, host_with(), *argv)
    assert code == 2
    assert "h1" in err
