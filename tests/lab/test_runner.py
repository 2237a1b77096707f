"""`lab.py run`: private, and nothing is left, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab import runner

LAB = Path(__file__).with_name("lab.py")
pytestmark = pytest.mark.lab


def start(*command: str) -> subprocess.Popen[str]:
    """`lab.py run` with that command."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LAB_")}
    argv = [sys.executable, str(LAB), "run", *command]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=clean)


def left_by(pid: int) -> list[Path]:
    """cgroups of the run with that pid."""
    top = runner.cgroup_top()
    return list(top.glob(f"lab-{pid}-*")) if top else []


def test_status_comes_back_and_the_network_is_private() -> None:
    run = start("sh", "-c", "ip -o link | grep -v ' lo:'; exit 7")
    out, _ = run.communicate(timeout=30)
    assert (run.returncode, out) == (7, "")
    assert not left_by(run.pid)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_leaves_no_process(how: signal.Signals, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    run = start("sh", "-c", f"while :; do date +%s%N > {alive}; sleep 0.05; done")
    end = time.monotonic() + 20
    while not alive.exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    run.send_signal(how)
    run.wait(20)
    end = time.monotonic() + 5
    while any(folder.joinpath("cgroup.procs").read_text() for folder in left_by(run.pid)):
        assert time.monotonic() < end
        time.sleep(0.02)
    runner.reap_stale()
    assert not left_by(run.pid)
