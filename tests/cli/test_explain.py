"""`explain` as a command: text, JSON, standard input, rule files."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from ddtree_console.cli.run import run
from tests.failures.score import cases

CASE = next(case for case in cases() if case.id == "kv-gemma-awq-24g")


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = tmp_path / "x.log"
    path.write_text("\n".join(CASE.lines), "utf-8")
    return path


def test_json_is_one_object(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", str(log), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"findings", "phase"}
    first = found["findings"][0]
    assert first["slug"] == "kv-budget-too-small" and first["fatal"] is True
    assert {"confidence", "summary", "evidence", "remedies"} <= set(first)
    assert CASE.lines[first["evidence"][0]["line"] - 1].endswith(first["evidence"][0]["text"])
    assert first["remedies"][0]["edits"][0]["op"] == "raise"


def test_text_and_standard_input(
    log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["explain", str(log)]) == 0
    told = capsys.readouterr().out
    assert "kv-budget-too-small" in told and "raise --mem-fraction-static" in told
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(log.read_bytes())))
    assert run(["explain", "-"]) == 0
    assert capsys.readouterr().out == told


def test_a_healthy_log_says_so(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text("[2026-01-01 10:00:00] Load weight begin.\n", "utf-8")
    assert run(["explain", str(log)]) == 0
    assert "nothing wrong found in 1 lines; phase: weights" in capsys.readouterr().out


def test_secrets_and_control_characters_stay_out(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text("ValueError: \x1b]0;x\x07 api_key='sk-verysecretvalue123' \x9b31m\u202e\n", "utf-8")
    assert run(["explain", str(log)]) == 0
    told = capsys.readouterr().out
    assert "sk-verysecret" not in told and not any(c in told for c in "\x1b\x07\x9b\u202e")


def test_what_cannot_be_read_is_told(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", str(log.parent / "absent")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert run(["explain"]) == 2


def test_rules_are_checked_and_shown(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(os.environ["XDG_CONFIG_HOME"]) / "ddtree-console" / "rules"
    folder.mkdir(parents=True)
    own = folder / "ours.yaml"
    own.write_text(
        "family: ours\nrules:\n  - id: our-pool\n    slug: kv-budget-too-small\n    any: ['increase --mem-fraction']\n"
        "    strength: 90\n    summary: ours\n    cases: []\n",
        "utf-8",
    )
    assert run(["explain", str(log), "--rules"]) == 0
    told = capsys.readouterr().out
    assert "1 of them yours" in told and "rule: our-pool" in told
    own.write_text(own.read_text("utf-8").replace("slug: kv-budget-too-small", "slug: nonsense"), "utf-8")
    assert run(["explain", "--rules"]) == 2
    assert f"{own}:4: rules[0].slug:" in capsys.readouterr().err
