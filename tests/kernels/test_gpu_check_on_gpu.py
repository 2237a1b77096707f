"""The GPU check on a real GPU: it passes, and says which of three planted failures it met, leaving nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ddtree_kernels
from tests.kernels.helpers import ON_GPU

pytestmark = pytest.mark.skipif(not ON_GPU, reason="no CUDA GPU: nothing can be compiled or captured")

KERNELS = Path(ddtree_kernels.__file__).parents[1]
NO_CAPTURE = """import torch
def refuse(self, *args, **kwargs):
    raise RuntimeError("planted: capture is not possible")
torch.cuda.CUDAGraph.capture_begin = refuse
"""


def in_use() -> tuple[set[str], int]:
    """(pids on the GPUs, MiB in use on all of them), as the driver tells."""
    ask = ["nvidia-smi", "--format=csv,noheader,nounits"]
    pids = subprocess.run([*ask, "--query-compute-apps=pid"], capture_output=True, text=True, check=True).stdout
    used = subprocess.run([*ask, "--query-gpu=memory.used"], capture_output=True, text=True, check=True).stdout
    return set(pids.split()), sum(map(int, used.split()))


def check(folder: Path, *options: str, **env: str) -> dict[str, Any]:
    """State and evidence by stage, and the verdict; nothing may be left."""
    before = in_use()
    done = subprocess.run(
        [sys.executable, "-m", "ddtree_kernels.gpu_check", *options],
        env={**os.environ, "PYTHONPATH": f"{folder}:{KERNELS}", **env},
        capture_output=True,
        text=True,
        timeout=400,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    print(done.stdout)
    after = in_use()
    assert after[0] <= before[0]
    assert after[1] <= before[1] + 16
    found = {row["stage"]: row for row in rows if "stage" in row}
    return {**found, "verdict": rows[-1]["verdict"], "code": done.returncode}


def test_a_good_environment_passes(tmp_path: Path) -> None:
    told = check(tmp_path)
    assert (told["code"], told["verdict"]["start"]) == (0, ["graphs and Triton work here: start with both on"])


def test_a_triton_that_cannot_assemble_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "ptxas"
    broken.write_text("#!/bin/sh\necho 'ptxas fatal: planted' >&2\nexit 255\n")
    broken.chmod(0o755)
    told = check(tmp_path, TRITON_PTXAS_PATH=str(broken), TRITON_PTXAS_BLACKWELL_PATH=str(broken))
    assert (told["torch"]["state"], told["triton"]["state"], told["graph"]["state"]) == ("ok", "fail", "ok")
    assert told["verdict"]["triton"] is False
    assert any("--attention-backend" in line for line in told["verdict"]["start"])


def test_a_capture_that_fails_is_told(tmp_path: Path) -> None:
    (tmp_path / "usercustomize.py").write_text(NO_CAPTURE)
    (tmp_path / "sitecustomize.py").write_text(NO_CAPTURE)
    told = check(tmp_path)
    assert (told["triton"]["state"], told["tree_build"]["state"], told["graph"]["state"]) == ("ok", "ok", "fail")
    assert "planted" in told["graph"]["evidence"]
    assert told["verdict"]["start"][0].startswith("--disable-cuda-graph")


def test_a_cap_that_is_too_small_is_told(tmp_path: Path) -> None:
    told = check(tmp_path, "--memory-mb", "16")
    assert (told["torch"]["state"], told["memory"]["state"], told["triton"]["state"]) == ("ok", "fail", "skip")
    assert "--memory-mb" in told["memory"]["remedy"]
