"""Reads NVML as the product does, with the real nvidia-ml-py, and prints JSON. It runs on a real GPU too.

golden-h200.json is its output on a real H200 (uuid replaced).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pynvml as nvml


def call(function: Callable[..., Any], *args: Any) -> Any:
    """What the function gives as JSON types, or the error that it raises."""
    try:
        got = function(*args)
    except nvml.NVMLError as error:
        return {"error": error.value, "text": str(error), "type": type(error).__name__}
    if isinstance(got, list):
        return [{"pid": process.pid, "used": process.usedGpuMemory} for process in got]
    if hasattr(got, "_fields_"):
        values = {name: getattr(got, name) for name, *_ in got._fields_}
        return {name: value for name, value in values.items() if isinstance(value, (int, str))}
    return got


def gpu(index: int) -> Any:
    """All readings of one device."""
    handle = call(nvml.nvmlDeviceGetHandleByIndex, index)
    if isinstance(handle, dict):
        return handle
    return {
        "name": call(nvml.nvmlDeviceGetName, handle),
        "uuid": call(nvml.nvmlDeviceGetUUID, handle),
        "mem1": call(nvml.nvmlDeviceGetMemoryInfo, handle),
        "mem2": call(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2),
        "util": call(nvml.nvmlDeviceGetUtilizationRates, handle),
        "temp": call(nvml.nvmlDeviceGetTemperature, handle, 0),
        "temp_bad_sensor": call(nvml.nvmlDeviceGetTemperature, handle, 9),
        "power": call(nvml.nvmlDeviceGetPowerUsage, handle),
        "limit": call(nvml.nvmlDeviceGetEnforcedPowerLimit, handle),
        "procs": call(nvml.nvmlDeviceGetComputeRunningProcesses, handle),
        "gprocs": call(nvml.nvmlDeviceGetGraphicsRunningProcesses, handle),
    }


def text(value: Any) -> Any:
    """nvidia-ml-py gives error texts as bytes or as text, by version."""
    return value.decode() if isinstance(value, bytes) else value


def main() -> None:
    """One JSON object."""
    out: dict[str, Any] = {"before_init_count": call(nvml.nvmlDeviceGetCount) if nvml.nvmlLib else None}
    out["init"] = call(nvml.nvmlInit)
    if out["init"] is None:
        out["driver"] = call(nvml.nvmlSystemGetDriverVersion)
        out["count"] = count = call(nvml.nvmlDeviceGetCount)
        out["gpus"] = [gpu(index) for index in range(count if isinstance(count, int) else 0)]
        out["out_of_range"] = call(nvml.nvmlDeviceGetHandleByIndex, 99)
        out["unknown_uuid"] = call(nvml.nvmlDeviceGetHandleByUUID, b"GPU-00000000-0000-0000-0000-000000000000")
        out["shutdown"] = call(nvml.nvmlShutdown)
        out["after_shutdown_count"] = call(nvml.nvmlDeviceGetCount)
        out["strings"] = {code: text(nvml.nvmlErrorString(code)) for code in [*range(30), 999]}
    json.dump(out, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
