"""The GPU check on a real GPU: it passes there, says which of three planted failures it met, and leaves nothing behind.

The good environment is checked as the console does it: carried to a host's folder, under the locks, with the driver's
own NVML before and after. Run this file alone: what is in use on the GPU is compared.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ddtree_kernels
from ddtree_console.transport import carried
from tests.hostside.support import FakeHost
from tests.kernels.helpers import ON_GPU

pytestmark = pytest.mark.skipif(not ON_GPU, reason="no CUDA GPU: nothing can be compiled or captured")

KERNELS = Path(ddtree_kernels.__file__).parents[1]
GPU = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
NO_CAPTURE = """import torch
def refuse(self, *args, **kwargs):
    raise RuntimeError("planted: capture is not possible")
torch.cuda.CUDAGraph.capture_begin = refuse
"""
# Triton asks for the version first, and takes its own ptxas instead of one that does not answer
BROKEN = """#!/bin/sh
[ "$1" = --version ] && { echo 'Cuda compilation tools, release 12.8, V12.8.93'; exit; }
echo 'ptxas fatal: planted' >&2
exit 255
"""
HOLD = "import torch; x = torch.zeros(1, device='cuda'); print('held', flush=True); input()"

Told = dict[str, Any]


def in_use() -> tuple[set[str], int]:
    """(pids on the GPU, MiB in use on it), as the driver tells."""
    ask = ["nvidia-smi", f"--id={GPU}", "--format=csv,noheader,nounits"]
    pids = subprocess.run([*ask, "--query-compute-apps=pid"], capture_output=True, text=True, check=True).stdout
    used = subprocess.run([*ask, "--query-gpu=memory.used"], capture_output=True, text=True, check=True).stdout
    return set(pids.split()), sum(map(int, used.split()))


def as_told(output: str) -> Told:
    """State and evidence by stage, the verdict, and the host's own lines."""
    print(output)
    found: Told = {}
    for row in map(json.loads, output.splitlines()):
        found.update({row["stage"]: row} if "stage" in row else row)
    return found


def start(folder: Path, *options: str, **env: str) -> subprocess.Popen[str]:
    """The check by itself, with `folder` first where Python looks for modules."""
    return subprocess.Popen(
        [sys.executable, "-m", "ddtree_kernels.gpu_check", *options],
        env={**os.environ, "PYTHONPATH": f"{folder}:{KERNELS}", **env},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def real(tmp_path: Path) -> FakeHost:
    """This host under roots of its own, with its real NVML and the kernels carried to it."""
    made = FakeHost(tmp_path / "host")
    made.roots_file.write_text(json.dumps({**json.loads(made.roots_file.read_text()), "nvml": True}))
    archive = carried.kernels()
    carry = {"hash": archive.hash, "tar": base64.b64encode(archive.data).decode()}
    assert made.run("carry", carry)[0]["ok"]
    return made


def ask(host: FakeHost) -> Told:
    """The host command's answer, stdin held open as a console holds it."""
    unit = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PATH") if name in os.environ}
    question = {
        "hash": carried.kernels().hash,
        "gpu": int(GPU),
        "units": ["a.service"],
        "python": sys.executable,
        "env": unit,
    }
    process = subprocess.Popen(
        host.argv("gpu_check"), env=host.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(question) + "\n")
    process.stdin.flush()
    output = process.stdout.read()
    process.stdin.close()
    process.wait(20)
    return as_told(output)


def test_a_good_environment_passes_and_nothing_is_left(real: FakeHost) -> None:
    before = in_use()
    told = ask(real)
    assert told["verdict"]["start"] == ["graphs and Triton work here: start with both on"]
    assert (told["ended"]["status"], told["ended"]["left"]) == (0, "")
    after = in_use()
    assert after[0] <= before[0]
    assert after[1] <= before[1] + 16


def test_a_gpu_that_a_process_uses_is_refused_by_name(real: FakeHost) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        told = ask(real)
        holder.communicate("\n")
    assert told["code"] == 7
    assert f"pid {holder.pid}" in told["cause"]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Told]]:
    """What three checks told that met a failure each; they run at once, and nothing of them may be left."""
    folder = tmp_path_factory.mktemp("planted")
    broken = folder / "ptxas"
    broken.write_text(BROKEN)
    broken.chmod(0o755)
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(NO_CAPTURE)
    before = in_use()
    running = {
        "triton": start(folder, TRITON_PTXAS_PATH=str(broken), TRITON_PTXAS_BLACKWELL_PATH=str(broken)),
        "capture": start(site),
        "memory": start(folder, "--memory-mb", "16"),
    }
    try:
        told = {name: as_told(process.communicate(timeout=400)[0]) for name, process in running.items()}
    finally:
        for process in running.values():
            process.terminate()
    after = in_use()
    assert after[0] <= before[0]
    assert after[1] <= before[1] + 16
    yield told


def test_a_triton_that_cannot_assemble_is_told(planted: dict[str, Told]) -> None:
    told = planted["triton"]
    assert (told["torch"]["state"], told["triton"]["state"], told["graph"]["state"]) == ("ok", "fail", "ok")
    assert told["verdict"]["triton"] is False
    assert any("--attention-backend" in line for line in told["verdict"]["start"])


def test_a_capture_that_fails_is_told(planted: dict[str, Told]) -> None:
    told = planted["capture"]
    assert (told["triton"]["state"], told["tree_build"]["state"], told["graph"]["state"]) == ("ok", "ok", "fail")
    assert "planted" in told["graph"]["evidence"]
    assert told["verdict"]["start"][0].startswith("--disable-cuda-graph")


def test_a_cap_that_is_too_small_is_told(planted: dict[str, Told]) -> None:
    told = planted["memory"]
    assert (told["torch"]["state"], told["memory"]["state"], told["triton"]["state"]) == ("ok", "fail", "skip")
    assert "--memory-mb" in told["memory"]["remedy"]
