"""nvidia-smi's CSV, for hosts where the NVML library cannot be loaded. Same raw form as the NVML child's."""

from __future__ import annotations

import csv
import shutil
import subprocess
from typing import Any

FIELDS = (
    "index",
    "name",
    "uuid",
    "driver_version",
    "memory.total",
    "memory.used",
    "memory.free",
    "utilization.gpu",
    "temperature.gpu",
    "power.draw",
    "enforced.power.limit",
)
APP_FIELDS = ("gpu_uuid", "pid", "used_memory")
MIB = 1024 * 1024
# Two queries of it stay below the reader's own deadline for nvidia-smi.
TIMEOUT = 7.0


def ask(query: str, fields: tuple[str, ...]) -> list[list[str]]:
    """Rows of one query; OSError with nvidia-smi's own words when it fails."""
    argv = ["nvidia-smi", f"--query-{query}={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"nvidia-smi: no answer within {TIMEOUT:g} s") from error
    out = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        said = (done.stderr.decode("utf-8", "replace").strip() or out.strip()).splitlines()
        raise OSError(f"nvidia-smi: {said[0] if said else f'exit status {done.returncode}'}")
    rows = ([cell.strip() for cell in row] for row in csv.reader(out.splitlines()))
    return [row for row in rows if len(row) == len(fields)]


def figure(cell: str) -> float | None:
    """A number, or None for `[N/A]` and the like."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if value == value and abs(value) < 1e12 else None


def gpu(row: list[str], apps: list[list[str]]) -> dict[str, Any]:
    """One device from its row."""
    cells = dict(zip(FIELDS, row))
    out: dict[str, Any] = {"name": cells["name"], "uuid": cells["uuid"]}
    out["index"] = int(cells["index"]) if cells["index"].isdigit() else 0
    missing: dict[str, str] = {}
    for name, field, scale in (
        ("total", "memory.total", MIB),
        ("used", "memory.used", MIB),
        ("free", "memory.free", MIB),
        ("util", "utilization.gpu", 1),
        ("temp", "temperature.gpu", 1),
        ("power", "power.draw", None),
        ("power_limit", "enforced.power.limit", None),
    ):
        value = figure(cells[field])
        if value is None:
            missing["memory" if scale == MIB else name] = cells[field].strip("[]").lower() or "not given"
        out[name] = value if value is None or scale is None else int(value * scale)
    out["unified"] = out["total"] is None and missing.get("memory", "") in ("n/a", "not supported")
    out["processes"] = []
    for uuid, pid, used in apps:
        if uuid == cells["uuid"] and pid.isdigit():
            mib = figure(used)
            out["processes"].append({"pid": int(pid), "used": None if mib is None else int(mib * MIB)})
    out["missing"] = missing
    return out


def read() -> dict[str, Any]:
    """One reading; {"fault"} in nvidia-smi's words when it cannot."""
    if shutil.which("nvidia-smi") is None:
        return {"source": "none", "fault": "nvidia-smi not found: no NVIDIA driver on this host"}
    try:
        rows = ask("gpu", FIELDS)
        try:
            apps = ask("compute-apps", APP_FIELDS)
        except OSError:
            apps = []
    except OSError as error:
        return {"source": "nvidia-smi", "fault": str(error)}
    return {"source": "nvidia-smi", "driver": rows[0][3] if rows else "", "gpus": [gpu(row, apps) for row in rows]}


def instead(why: str) -> dict[str, Any]:
    """nvidia-smi's reading where NVML failed with `why`, which is kept when nvidia-smi cannot help either."""
    raw = read()
    if raw["source"] == "none":
        raw["fault"] = f"{why}, and nvidia-smi not found: no NVIDIA driver on this host"
    return raw
