"""The story from a shell: a headless demo, and the other commands as processes against its hosts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest


def start(*argv: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ddtree_console.cli", *argv]
    # a shell gives what it starts in the background an ignored SIGINT, and its children inherit that
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heard)


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    """The fleet file of a demo that runs; afterwards nothing of it is left."""
    process = start("demo", "--headless", "--json", "--speed", "200")
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    assert set(told["services"]) == {"ct129/sglang-qwen", "ct200/wrapper", "ct200/sglang-dflash"}
    yield told["fleet"]
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert b"its two hosts have ended" in err
    assert not Path(told["fleet"]).exists()


def run(fleet: str, *argv: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "ddtree_console.cli", *argv],
        capture_output=True,
        timeout=60,
        env={**os.environ, "DDTREE_FLEET": fleet},
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode, done.stdout.decode()


def run_json(fleet: str, *argv: str) -> tuple[int, Any]:
    code, out = run(fleet, *argv, "--json")
    return code, json.loads(out)


def test_what_serves_is_ready(demo: str) -> None:
    code, told = run_json(demo, "status", "ct129")
    assert code == 0
    assert (told["services"][0]["ready"], told["services"][0]["http"]["source"]) == (True, "metrics")
    code, out = run(demo, "status")
    assert code == 4  # sglang-dflash is yet to be deployed
    assert "ct200/sglang-dflash  ○" in out


def test_a_start_that_fails_goes_back_by_itself(demo: str) -> None:
    code, out = run(
        demo, "deploy", "ct129/sglang-qwen", "--profile", "ddtree-shadow", "--hold", "0.2", "--reason", "try"
    )
    assert code == 3
    assert "fatal-log: RuntimeError: Not enough memory" in out
    assert "remedy: " in out
    assert "went back to the known good  r1" in out
    assert "serves: /models/qwen3-target (wrapper)" in out
    code, rows = run_json(demo, "history", "ct129/sglang-qwen")
    assert (code, rows[0]["outcome"], rows[0]["reason"]) == (0, "went_back", "try")
    code, out = run(demo, "logs", "ct129/sglang-qwen", "-n", "2000")
    assert code == 0
    assert "Not enough memory" in out


def test_a_start_that_works_is_committed_and_goes_back_with_one_command(demo: str) -> None:
    code, out = run(demo, "deploy", "ct200/sglang-dflash", "--hold", "0.2")
    assert code == 0, out
    assert "● committed  r1" in out
    code, told = run_json(demo, "status", "ct200/sglang-dflash")
    assert (code, told["services"][0]["ready"]) == (0, True)
    code, out = run(demo, "rollback", "ct200/sglang-dflash")
    assert code == 0, out
    assert "wrapper" in out
    code, told = run_json(demo, "status", "ct200/wrapper")
    assert (code, told["services"][0]["ready"]) == (0, True)


def test_checks_of_a_host_with_services(demo: str) -> None:
    code, told = run_json(demo, "check", "ct129")
    assert code == 0, told
    assert {"connection", "sudo", "python", "systemd"} <= {c["name"] for c in told["checks"]}


def test_watch_prints_lines_until_it_is_interrupted(demo: str) -> None:
    process = start("watch", "ct129", "--json", "--fleet", demo)
    assert process.stdout is not None
    told: dict[str, Any] = {}
    for line in process.stdout:
        told = json.loads(line)
        if told["state"].startswith("ready"):
            break
    assert told["key"] == "ct129/sglang-qwen"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, b"")


def test_following_a_log_ends_quietly(demo: str) -> None:
    process = start("logs", "ct200/wrapper", "-f", "--fleet", demo)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, b"")
