"""Commands in this process against a scripted host: exit codes, JSON, and text that is safe to print."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ddtree_console.cli import live, main
from ddtree_console.services.errors import NoFleet
from ddtree_console.transport.base import TransportError
from tests.cli.scripted import TellingHost, event, install, transaction, units
from tests.services.doubles import ScriptedHost

HOSTILE = "\x1b]52;c;ZXZpbA==\x07\x1b[31m[bold]\u202eevil\x9b31m"
OURS = {"kind": "ports", "ports": {"s1": {"state": "ours", "address": "127.0.0.1", "pid": 7}}}


@pytest.fixture(autouse=True)
def _restore(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test installs is undone."""
    monkeypatch.setattr(live, "load_fleet", live.load_fleet)
    monkeypatch.setattr(live, "build", live.build)


def run(capsys: pytest.CaptureFixture[str], host: ScriptedHost, *argv: str) -> tuple[int, str, str]:
    install(host)
    code = main(argv)
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def ready_host() -> TellingHost:
    host = TellingHost(units(invocation="i1", main_pid=7), OURS, *transaction("committed"))
    host.http = {"/model_info": (200, '{"model_path":"/models/m"}')}
    return host


def test_status_of_a_ready_service(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, ready_host(), "status")
    assert code == 0
    assert out.startswith("h1/s1  ● ready")


def test_status_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, ready_host(), "status", "h1/s1", "--json")
    found = json.loads(out)
    assert (code, found["ok"]) == (0, True)
    one = found["services"][0]
    assert (one["key"], one["ready"], one["systemd"]["main_pid"]) == ("h1/s1", True, 7)
    assert (one["http"]["status"], one["tx"]["outcome"], one["listener"]) == (200, "committed", "ours")


@pytest.mark.parametrize(
    ("messages", "code", "word"),
    [
        ([units(active="failed", result="exit-code")], 4, "failed"),
        ([units(active="inactive")], 4, "stopped"),
        ([units(), {"kind": "ports", "ports": {"s1": {"state": "foreign", "command": "nc"}}}], 4, "port taken"),
    ],
)
def test_status_of_what_is_not_ready(
    capsys: pytest.CaptureFixture[str], messages: list[dict[str, Any]], code: int, word: str
) -> None:
    got, out, _ = run(capsys, TellingHost(*messages), "status")
    assert (got, word in out) == (code, True)


def test_status_of_a_host_out_of_reach(capsys: pytest.CaptureFixture[str]) -> None:
    host = ScriptedHost()
    host.refuse = [TransportError("unknown-key", "h1", "connect", "unknown key SHA256:x", "ssh-keyscan h1.example")]
    code, out, _ = run(capsys, host, "status")
    assert code == 5
    assert "SHA256:x" in out


def test_text_from_a_host_is_harmless_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    secret = "--api-key sk-canarycanarycanary1"
    verdict = event(2, "verdict", ok=False, code="fatal-log", cause=HOSTILE, remedy=HOSTILE, evidence=[HOSTILE, secret])
    host = TellingHost(units(), tells=transaction("went_back", verdict, event(3, "note", text=HOSTILE)))
    host.answers["logs"] = lambda p: [{"__CURSOR": "c", "_SYSTEMD_UNIT": "s1.service", "MESSAGE": HOSTILE + secret}]
    host.answers["history"] = lambda p: [{"tx": HOSTILE, "what": HOSTILE, "outcome": HOSTILE, "cause": HOSTILE}]
    host.answers["check"] = lambda p: [{"name": HOSTILE, "state": "warn", "evidence": HOSTILE, "remedy": HOSTILE}]
    for argv in (("deploy", "h1/s1"), ("logs", "h1/s1"), ("history", "h1/s1"), ("check", "h1")):
        for extra in ((), ("--json",)):
            _, out, err = run(capsys, host, *argv, *extra)
            assert "evil" in out
            for text in (out, err):
                assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e"}
                assert "canary" not in text


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("committed", 0),
        ("went_back", 3),
        ("went_way_back", 3),
        ("left", 3),
        ("nothing_serves", 4),
        ("stopped", 4),
        ("cut", 4),
        ("refused", 7),
        ("serving_uncommitted", 8),
    ],
)
def test_deploy_exits_as_its_outcome(capsys: pytest.CaptureFixture[str], state: str, code: int) -> None:
    got, out, _ = run(capsys, TellingHost(units(), tells=transaction(state)), "deploy", "h1/s1")
    assert got == code
    assert "serves: m (sglang) on port 30000" in out


def test_deploy_tells_steps_rungs_phases_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    told = transaction(
        "went_back",
        event(2, "phase", phase="weights", state="run"),
        event(3, "phase", phase="graphs", state="run", done=3, total=23),
        event(4, "phase", phase="graphs", state="run", done=4, total=23),
        event(5, "phase", phase="weights", state="ok", secs=68.0, last_good=70.0),
        event(6, "progress", moved=["log"]),
        event(
            7, "verdict", ok=False, code="fatal-log", cause="Not enough memory", remedy="lower it", evidence=["E: x"]
        ),
        event(8, "back", target="r1", profile="old", why="Not enough memory"),
        event(9, "rung", rung="token", state="ok", secs=0.4),
        event(10, "mystery", thing=1),
    )
    _, out, _ = run(capsys, TellingHost(units(), tells=told), "deploy", "h1/s1", "--profile", "shadow")
    lines = [line.strip() for line in out.splitlines()]
    for words in (
        "deploy h1/s1  r1 -> r2  shadow  by ops@laptop, on failure: back",
        "✓ start 0.1s",
        "✓ weights 1:08 (last good start 1:10)",
        "✖ fatal-log: Not enough memory",
        "| E: x",
        "remedy: lower it",
        "↻ going back to r1 old: Not enough memory",
        "✓ token 0.4s",
        "↻ went back to the known good  r2",
    ):
        assert any(words in line for line in lines), words
    assert sum("◐ graphs" in line for line in lines) == 1
    assert any("mystery" in line for line in lines)
    assert not any("progress" in line for line in lines)


def test_deploy_as_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, TellingHost(units(), tells=transaction("committed")), "deploy", "h1/s1", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, [r["kind"] for r in rows]) == (0, ["begin", "step", "outcome"])


def test_detach_returns_at_once_with_the_transaction(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, TellingHost(units()), "deploy", "h1/s1", "--detach", "--json")
    assert (code, json.loads(out)) == (0, {"ok": True, "key": "h1/s1", "tx": "t1"})


def test_rollback_goes_to_the_way_back(capsys: pytest.CaptureFixture[str]) -> None:
    host = TellingHost(units(), tells=transaction("committed"))
    code, _, err = run(capsys, host, "rollback", "h1/s1")
    assert code == 0
    assert "back to linear" in err
    assert (host.calls[0][1]["what"], host.calls[0][1]["to"]) == ("rollback", "way-back")


@pytest.mark.parametrize("code", [4, 6, 7])
def test_refusals_keep_the_hosts_code_and_name_the_next_step(capsys: pytest.CaptureFixture[str], code: int) -> None:
    host = TellingHost(units())
    host.answers["submit"] = lambda p: [{"ok": False, "code": code, "cause": "locked by eve", "next": "wait"}]
    got, _, err = run(capsys, host, "deploy", "h1/s1")
    assert got == code
    assert "h1: submit: locked by eve" in err
    assert "next: wait" in err
    got, out, _ = run(capsys, host, "deploy", "h1/s1", "--json")
    assert (got, json.loads(out)["code"], json.loads(out)["ok"]) == (code, code, False)


@pytest.mark.parametrize("argv", [("deploy", "h1/s1"), ("rollback", "h1/s1"), ("adopt", "h1", "s1")])
def test_read_only_refuses_what_changes_a_host(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]) -> None:
    host = TellingHost(units())
    code, _, err = run(capsys, host, *argv, "--read-only")
    assert code == 7
    assert "read-only" in err
    assert host.calls == []


def test_dry_run_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    host = TellingHost(units())
    host.answers["read"] = lambda p: [{"unit": "s1.service", "text": "[Service]\nExecStart=/bin/old\n", "edited": []}]
    code, out, _ = run(capsys, host, "deploy", "h1/s1", "--dry-run")
    assert code == 0
    assert "-ExecStart=/bin/old" in out
    assert [c[0] for c in host.calls] == ["read"]


def test_history_and_check(capsys: pytest.CaptureFixture[str]) -> None:
    host = TellingHost(units())
    host.answers["history"] = lambda p: [
        {
            "tx": "t1",
            "what": "deploy",
            "wall": 1.7e9,
            "seconds": 61,
            "source": "r1",
            "target": "r2",
            "outcome": "went_back",
        }
        | {"furthest": "graphs", "cause": "no memory", "reason": "try", "changed": ["flag a 1 -> 2"]}
    ]
    host.answers["check"] = lambda p: [{"name": "port", "state": "fail", "evidence": "taken", "remedy": "free it"}]
    code, out, _ = run(capsys, host, "history", "h1/s1")
    assert code == 0
    for words in ("r1 -> r2", "went_back", "1:01", "graphs: no memory", "reason: try", "flag a 1 -> 2"):
        assert words in out
    code, out, _ = run(capsys, host, "history", "h1/s1", "--json")
    assert json.loads(out)[0]["changed"] == ["flag a 1 -> 2"]
    code, out, _ = run(capsys, host, "check", "h1/s1")
    assert code == 7
    assert "✖ port: taken" in out
    assert "free it" in out
    host.refuse = [TransportError("auth", "h1", "connect", "no key fits", "ssh-add")] * 2
    code, out, _ = run(capsys, host, "check", "h1", "--json")
    assert (code, json.loads(out)["checks"][0]["state"]) == (5, "fail")


@pytest.mark.parametrize(
    "argv",
    [
        ("deploy", "nohost"),
        ("deploy", "h1/s1", "--on-failure", "pray"),
        ("deploy", "h1/s1", "--hold", "-1"),
        ("deploy", "h1/s1", "--force"),
        ("deploy", "h9/s1"),
        ("deploy", "h1/s9"),
        ("deploy", "h1/s1", "--profile", "nope"),
        ("rollback", "h1/s1", "--to", "x1"),
        ("status", "a/b/c"),
        ("logs", "h1/s1", "-n", "0"),
        ("adopt", "a", "b", "c"),
        ("fly",),
    ],
)
def test_bad_input_is_exit_2(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]) -> None:
    code, _, err = run(capsys, TellingHost(units()), *argv)
    assert code == 2
    assert err


def test_no_fleet_shows_the_way_in(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def none(explicit: str | None) -> None:
        raise NoFleet(["./profiles/fleet.yaml"])

    monkeypatch.setattr(live, "load_fleet", none)
    assert main(["status"]) == 2
    err = capsys.readouterr().err
    assert "./profiles/fleet.yaml" in err
    assert "adopt" in err
    assert "demo" in err


def test_a_broken_fleet_prints_every_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(ValueError):
        problems = ("fleet.yaml:3: port: not a number", "fleet.yaml:9: unit: missing")

    def broken(explicit: str | None) -> None:
        raise Broken

    monkeypatch.setattr(live, "load_fleet", broken)
    assert main(["status"]) == 2
    assert capsys.readouterr().err.splitlines() == list(Broken.problems)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("ddtree-console 0.")
