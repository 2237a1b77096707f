"""The parent: one child a stage, one JSON line a result, the verdict last. Exit 0 when all passed, 1 otherwise."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ddtree_kernels.gpu_check.plan import STAGES, Result, Stage, ended, missing, verdict

PRCTL: Any = getattr(ctypes.CDLL(None), "prctl", None)


def answer(stage: str, out: str, seconds: float) -> Result | None:
    """The child's own result: its last line, None where that is none."""
    try:
        raw: Any = json.loads(out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return None
    if not isinstance(raw, dict) or raw.get("state") not in ("ok", "fail"):
        return None
    return Result(stage, raw["state"], str(raw.get("evidence", "")), seconds, str(raw.get("remedy", "")))


def run(stage: Stage, megabytes: int, environment: Mapping[str, str], limit: float) -> Result:
    """That stage in a child with its own process group, which is gone when this returns."""
    began = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "ddtree_kernels.gpu_check.child", stage.name, str(megabytes)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=dict(environment),
        start_new_session=True,
        preexec_fn=_die_with_parent,
    )
    killed = False
    try:
        out, err = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        killed = True
        os.killpg(child.pid, signal.SIGKILL)
        out, err = child.communicate()
    finally:
        end_group(child.pid)
    seconds = round(time.monotonic() - began, 2)
    told = None if killed or child.returncode else answer(stage.name, out, seconds)
    return told or ended(stage.name, child.returncode, out, err, seconds, limit, killed)


def _die_with_parent() -> None:
    """In a new child: the kernel kills it when this process ends, however that happens."""
    if PRCTL is not None:
        PRCTL(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def end_group(group: int) -> None:
    """Compilers that a child left behind."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def main() -> int:
    """As the module says."""
    parser = argparse.ArgumentParser(prog="ddtree_kernels.gpu_check")
    parser.add_argument("--memory-mb", type=int, default=2000, help="most that torch may allocate in a stage")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for all stages together")
    asked = parser.parse_args()
    end = time.monotonic() + asked.limit
    results: dict[str, Result] = {}
    # The host's own Triton cache is neither trusted (a stale entry hides a broken compiler) nor filled.
    with tempfile.TemporaryDirectory(prefix="ddtree-gpu-check-") as cache:
        environment = {**os.environ, "TRITON_CACHE_DIR": cache}
        for stage in STAGES:
            lacking, left = missing(stage, results), end - time.monotonic()
            if lacking:
                result = Result(stage.name, "skip", f"needs {lacking}")
            elif left <= 0:
                result = Result(stage.name, "fail", f"not begun: {asked.limit:g} s are over", 0.0, "raise --limit")
            else:
                result = run(stage, asked.memory_mb, environment, min(stage.limit, left))
            results[stage.name] = result
            print(json.dumps(asdict(result)), flush=True)
    print(json.dumps({"verdict": verdict(results)}), flush=True)
    return 0 if all(r.state == "ok" for r in results.values()) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
