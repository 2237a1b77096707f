"""A unit file that somebody wrote becomes a profile without any host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddtree_console.cli import main
from ddtree_console.config.store import ProfileStore

UNIT = """[Unit]
Description=Qwen, by hand
[Service]
Environment=CUDA_VISIBLE_DEVICES=0,1
ExecStart=/root/ml-env/bin/python3 -m sglang.launch_server --model-path /models/m --port 30001 --context-length 8192
MyOwn=kept
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DDTREE_FLEET", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


def test_writes_a_profile_and_names_its_slot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "qwen.service").write_text(UNIT)
    folder = tmp_path / "qwen.service.d"
    folder.mkdir()
    (folder / "10.conf").write_text("[Service]\nEnvironment=HF_HOME=/data\n")
    assert main(["adopt", "qwen.service", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["profile"], told["slot"]["port"], told["slot"]["gpus"]) == ("qwen", 30001, [0, 1])
    profile = ProfileStore(tmp_path / "profiles").profiles()["qwen"]
    assert profile.flags["context-length"] == 8192
    assert profile.env["HF_HOME"] == "/data"
    assert profile.verbatim is not None
    assert "MyOwn=kept" in profile.verbatim
    assert main(["adopt", "qwen.service"]) == 0
    assert "profile qwen-2 written to profiles/qwen-2.yaml" in capsys.readouterr().out


@pytest.mark.parametrize("text", [None, "no unit"])
def test_what_is_no_unit_file_is_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None) -> None:
    if text is not None:
        (tmp_path / "x.service").write_text(text)
    assert main(["adopt", "x.service"]) == 2
    assert "x.service: read the unit file" in capsys.readouterr().err
