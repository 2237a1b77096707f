"""The host's part of a GPU check: carried code, a free GPU, locks, and nothing left behind. NVML is the double."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ddtree_console.hostside import locks
from ddtree_console.hostside.hostclock import Clock
from ddtree_console.transport import carried
from tests.hostside.support import FakeHost
from tests.hostside.test_gpus import ONE, library

__all__ = ["library"]
FREE = "\n".join(line for line in ONE.splitlines() if ".proc" not in line) + "\n"
NUL = subprocess.DEVNULL


@pytest.fixture
def ready(host: FakeHost, library: Path) -> FakeHost:
    """A host whose one GPU is free, with the kernels carried to it."""
    host.roots_file.write_text(json.dumps({**json.loads(host.roots_file.read_text()), "nvml": True}))
    answers = host.folder / "nvml"
    answers.write_text(FREE)
    host.env.update(LD_LIBRARY_PATH=str(library), LAB_NVML=str(answers))
    archive = carried.kernels()
    tar = base64.b64encode(archive.data).decode()
    assert host.run("carry", {"hash": archive.hash, "tar": tar})[0]["ok"]
    return host


def question(host: FakeHost, **more: Any) -> dict[str, Any]:
    return {"hash": carried.kernels().hash, "gpu": 0, "units": ["a.service"], "python": sys.executable, **more}


def stand_in(host: FakeHost, body: str) -> str:
    """An interpreter that runs `body` in place of the check, with `python` the real one."""
    return str(host.shim("python-of-the-unit", f"#!/bin/bash\n{body}\n"))


def ask(host: FakeHost, payload: dict[str, Any]) -> list[dict[str, Any]]:
    """The answer lines while stdin stays open, as a console keeps it."""
    process = subprocess.Popen(host.argv("gpu_check"), env=host.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(payload).encode() + b"\n")
    process.stdin.flush()
    lines = process.stdout.read().splitlines()
    process.stdin.close()
    process.wait(10)
    return [json.loads(line) for line in lines]


def test_carried_files_are_written_once_and_checked(host: FakeHost) -> None:
    archive = carried.kernels()
    assert "ddtree_kernels/gpu_check/__main__.py" in archive.files
    payload = {"hash": archive.hash, "tar": base64.b64encode(archive.data).decode()}
    first = host.run("carry", payload)[0]
    folder = Path(first["path"])
    assert (folder.name, oct(folder.stat().st_mode & 0o777)) == (archive.hash, "0o755")
    assert host.run("carry", payload)[0] == first
    main = folder / "ddtree_kernels/gpu_check/__main__.py"
    main.write_text("print('changed')")
    refused = host.run("carry", payload)[0]
    assert (refused["code"], "is not what was carried there" in refused["cause"]) == (7, True)
    assert "rm -r" in refused["next"]


def test_an_archive_that_is_not_what_it_says_is_refused(host: FakeHost) -> None:
    data = b"not a tar"
    name = hashlib.sha256(data).hexdigest()[:16]
    for payload in (
        {"hash": "0" * 16, "tar": ""},
        {"hash": name, "tar": base64.b64encode(data).decode()},
        {"tar": "%"},
    ):
        assert host.run("carry", payload)[0]["code"] == 2
    assert not Path(host.roots.opt).exists()


def test_the_real_check_runs_with_the_units_environment(ready: FakeHost) -> None:
    told = ask(ready, question(ready, env={"LD_LIBRARY_PATH": "/nowhere"}, limit=60))
    assert (told[0]["began"], told[0]["gpu"], told[0]["uuid"]) == (0, "NVIDIA H200", "GPU-1")
    assert (told[1]["stage"], told[1]["state"]) == ("torch", "fail")  # there is no CUDA GPU here
    assert told[-2]["verdict"]["start"][0].startswith("do not start here yet")
    assert told[-1] == {"ended": {"status": 1, "why": "", "tail": "", "left": ""}}


def test_what_the_child_sees_is_the_gpu_and_the_carried_folder(ready: FakeHost) -> None:
    python = stand_in(ready, 'echo "{\\"gpu\\": \\"$CUDA_VISIBLE_DEVICES\\", \\"path\\": \\"$PYTHONPATH\\"}"')
    told = ask(ready, question(ready, python=python, env={"PYTHONPATH": "/theirs"}))
    assert told[1] == {"gpu": "GPU-1", "path": f"{ready.roots.opt}/{carried.kernels().hash}:/theirs"}


def test_a_gpu_in_use_is_refused_by_name(ready: FakeHost) -> None:
    Path(ready.env["LAB_NVML"]).write_text(ONE)
    told = ask(ready, question(ready))
    assert (told[0]["code"], f"pid {os.getpid()}" in told[0]["cause"]) == (7, True)


def test_a_lost_or_missing_gpu_is_refused(ready: FakeHost) -> None:
    assert "there is no GPU 3" in ask(ready, question(ready, gpu=3))[0]["cause"]


def test_it_takes_the_locks_of_the_services_there(ready: FakeHost) -> None:
    held = locks.acquire(ready.roots, "a.service", [], {"who": "ann", "why": "deploy"}, Clock())
    told = ask(ready, question(ready))
    held.release()
    assert (told[0]["code"], told[0]["holder"]["who"]) == (6, "ann")
    python = stand_in(ready, f"cat {ready.roots.locks()}/gpu-0.lock {ready.roots.locks()}/a.service.lock")
    told = ask(ready, question(ready, python=python, who="ops"))
    assert [row["why"] for row in told[1:3]] == ["gpu-check", "gpu-check"]
    assert locks.holder(ready.roots, "gpu-0") is None


def test_memory_and_processes_that_stay_are_told(ready: FakeHost) -> None:
    answers = ready.env["LAB_NVML"]
    python = stand_in(ready, f"sed -i 's/0.used .*/0.used 9073741824/' {answers}")
    told = ask(ready, question(ready, python=python, settle=0.3))
    assert told[-1]["ended"]["left"] == "8000 MB more in use than before"


def test_a_console_that_goes_away_ends_it(ready: FakeHost) -> None:
    fifo = ready.folder / "pid"
    os.mkfifo(fifo)
    python = stand_in(ready, f"echo $$ > {fifo}; exec sleep 60")
    process = subprocess.Popen(
        ready.argv("gpu_check"), env=ready.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=NUL
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(question(ready, python=python)).encode() + b"\n")
    process.stdin.flush()
    pid = int(fifo.read_text())
    out, _ = process.communicate(timeout=20)  # closes its stdin
    assert json.loads(out.splitlines()[-1])["ended"]["why"] == "the console went away"
    assert not Path(f"/proc/{pid}").exists()
    assert locks.holder(ready.roots, "gpu-0") is None
