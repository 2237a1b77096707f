"""What cannot be served says so in one line, with the status that tells why, before the port is open."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ddtree_console.domain.engines.sglang_log import SglangReader
from ddtree_kernels.serve.__main__ import main
from tests.serve.disk import write_pair
from tests.serve.process import free_port


def start(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    """(exit status, the line that says why) of a start that must fail; that line is the last, and there is no other."""
    port = free_port()
    status = main([*flags, "--port", str(port)])
    with socket.create_server(("127.0.0.1", port)):
        pass
    lines = [line for line in capsys.readouterr().err.splitlines() if line]
    assert "server_args=ServerArgs(" in lines[0] and len(lines) == 2, lines
    assert "Traceback" not in lines[1]
    return status, lines[1]


def changed(tmp_path: Path, **fields: Any) -> Path:
    return write_pair(tmp_path / "changed", **fields)


def test_an_unknown_flag_or_a_bad_value_exits_2_without_torch() -> None:
    bad = (["--nonsense"], ["--mode", "tree"], ["--port", "0"], ["--budget", "0"], ["--mem-fraction-static", "1.5"],
           ["--context-length", "none"], ["--drain-seconds", "-1"], ["--host", "not an address"])  # fmt: skip
    code = (
        "import sys; from ddtree_kernels.serve.__main__ import main\n"
        "try: main(['--model', 'tiny', *sys.argv[1:]])\n"
        "except SystemExit as end: print(end.code, 'torch' in sys.modules)"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for flags in bad
    ]
    for process, flags in zip(started, bad, strict=True):
        out, err = process.communicate(timeout=30)
        assert out.split() == ["2", "False"], (flags, out, err)
        reader = SglangReader()
        facts = [fact for line in err.splitlines() for fact in reader.feed(line)]
        assert "exit-arguments" in [fact.name for fact in facts if fact.kind == "fatal"], err


def test_a_taken_port_is_found_before_anything_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--model", "/no/such/model", "--port", str(port)]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert "address already in use" in line and str(port) in line
    reader = SglangReader()
    assert [fact.name for fact in reader.feed(line) if fact.kind == "fatal"] == ["cannot-bind"]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--model", "/no/such/model"], "no model at /no/such/model"),
        (["--draft", "/no/such/draft"], "no draft at /no/such/draft"),
        (["--mode", "shadow-linear", "--budget", "2"], "at least 3"),
        (["--context-length", "1k"], "context_length (1024) is greater than the derived context_length (512)"),
        (["--mem-fraction-static", "0.0000001"], "Not enough memory. Please try to increase --mem-fraction-static"),
        pytest.param(
            ["--device", "cuda"],
            "torch sees no GPU",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_was_asked_for_cannot_be(
    capsys: pytest.CaptureFixture[str], pair_folder: Path, flags: list[str], why: str
) -> None:
    status, line = start(capsys, "--model", str(pair_folder), *flags)
    assert status == 1 and why in line
    reader = SglangReader()
    reader.feed(line)
    assert why in reader.cause()[1]


def test_a_pair_that_does_not_fit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = changed(tmp_path, draft={"vocab_size": 300})
    status, line = start(capsys, "--model", str(folder))
    assert status == 1 and "its vocabulary is 300, the target's 260" in line
    shutil.rmtree(folder / "draft")
    status, line = start(capsys, "--model", str(folder))
    assert status == 1 and "has no draft beside it" in line and "--mode autoregressive" in line


def test_damaged_files(capsys: pytest.CaptureFixture[str], tmp_path: Path, pair_folder: Path) -> None:
    folder = shutil.copytree(pair_folder, tmp_path / "damaged")
    weights = folder / "target/model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    status, line = start(capsys, "--model", str(folder))
    assert status == 1 and str(weights) in line and "truncated" in line
    weights.write_bytes(whole)
    tokenizer = folder / "target/tokenizer.json"
    read = json.loads(tokenizer.read_text())
    read["model"]["vocab"]["zzz"] = 999
    tokenizer.write_text(json.dumps(read))
    status, line = start(capsys, "--model", str(folder))
    assert status == 1 and str(tokenizer) in line and "vocabulary is 260" in line
    (folder / "target/config.json").write_text("{")
    status, line = start(capsys, "--model", str(folder))
    assert status == 1 and "config.json is no JSON" in line
