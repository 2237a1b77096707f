"""The GPU check as processes: what its parent says of children that fail, crash, hang or leave others behind.

The torch of these children is a file that the test wrote: what a real GPU says is seen on one (see the README).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import ddtree_kernels
from ddtree_kernels.gpu_check.plan import STAGES, Result, verdict

KERNELS = Path(ddtree_kernels.__file__).parents[1]


def start(folder: Path, torch: str, *options: str) -> subprocess.Popen[str]:
    (folder / "torch.py").write_text(torch)
    env = {**os.environ, "PYTHONPATH": f"{folder}:{KERNELS}", "TMPDIR": str(folder)}
    argv = [sys.executable, "-m", "ddtree_kernels.gpu_check", *options]
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rows(folder: Path, torch: str, *options: str) -> tuple[int, list[dict[str, Any]]]:
    process = start(folder, torch, *options)
    out, err = process.communicate(timeout=30)
    assert err == ""
    return process.returncode, [json.loads(line) for line in out.splitlines()]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # a zombie that its new parent has not reaped yet is dead all the same
    return ") Z " not in Path(f"/proc/{pid}/stat").read_text()


def dies(pid: int) -> bool:
    until = time.monotonic() + 5
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not alive(pid)


@pytest.mark.parametrize(
    ("torch", "evidence", "remedy"),
    [
        ("import os\nos.abort()", "died of signal 6", "Xid"),
        ("raise ImportError('libcudart.so.13: cannot open', name='torch')", "libcudart.so.13: cannot open", "install"),
        ("import sys\nprint('on the way out', file=sys.stderr)\nsys.exit(3)", "ended with 3: on the way out", ""),
        ("import os\nprint('half', flush=True)\nos._exit(0)", "ended with 0: half", ""),
        ("raise MemoryError('CUDA out of memory')", "MemoryError: CUDA out of memory", "--memory-mb"),
    ],
)
def test_a_child_that_fails_ends_alone(tmp_path: Path, torch: str, evidence: str, remedy: str) -> None:
    code, told = rows(tmp_path, torch)
    assert code == 1
    assert [(row["stage"], row["state"]) for row in told[:2]] == [("torch", "fail"), ("memory", "skip")]
    assert evidence in told[0]["evidence"]
    assert remedy in told[0]["remedy"]
    assert len(told) == len(STAGES) + 1
    assert "do not start here yet" in told[-1]["verdict"]["start"][0]
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("ddtree-")] == []


def test_a_child_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    torch = f"""import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "60"])
open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
print("compiling", file=sys.stderr, flush=True)
time.sleep(60)"""
    code, told = rows(tmp_path, torch, "--limit", "1.5")
    assert (code, told[0]["state"]) == (1, "fail")
    assert told[0]["evidence"].startswith("no end within ")
    assert told[0]["evidence"].endswith("last line: compiling")
    assert all(dies(int(pid)) for pid in pids.read_text().split())


def test_children_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    fifo = tmp_path / "pid"
    os.mkfifo(fifo)
    torch = f"import os, time\nopen({str(fifo)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    process = start(tmp_path, torch)
    child = int(fifo.read_text())
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    assert dies(child)


def results(**states: str) -> dict[str, Result]:
    return {s.name: Result(s.name, states.get(s.name.replace(" ", "_"), "ok"), "") for s in STAGES}


def test_the_verdict_says_what_to_start_with() -> None:
    good = verdict(results())
    assert (good["triton"], good["kernels"], good["graphs"]) == (True, True, True)
    assert good["start"] == ["graphs and Triton work here: start with both on"]
    no_triton = verdict(results(triton="fail", tree_build="skip", kernels_in_a_graph="skip"))
    assert (no_triton["triton"], no_triton["kernels"], no_triton["graphs"]) == (False, None, True)
    assert any("--attention-backend" in line for line in no_triton["start"])
    assert any("--disable-piecewise-cuda-graph" in line for line in no_triton["start"])
    assert not any(line.startswith("--disable-cuda-graph") for line in no_triton["start"])
    no_graph = verdict(results(graph="fail", kernels_in_a_graph="skip"))
    assert no_graph["start"] == ["--disable-cuda-graph, and the prefill graph off too: capture does not work here"]
    ours_only = verdict(results(kernels_in_a_graph="fail"))
    assert ours_only["start"][0].startswith("--disable-cuda-graph for DDTree")
