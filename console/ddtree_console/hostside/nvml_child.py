"""Reads NVML (or nvidia-smi) in a process of its own, because a driver call can hang for ever.

Each line on stdin asks for one reading; the answer is one JSON line. EOF ends it. pynvml is imported nowhere else.
Run as a script: `python3 -I -B nvml_child.py nvml|smi`.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What each NVML return code means to an operator.
FAULTS = {
    3: "not supported",
    4: "no permission",
    6: "not found",
    9: "NVIDIA driver not loaded",
    10: "NVML timed out",
    12: "NVML library not found",
    13: "this driver lacks the call",
    14: "corrupted infoROM",
    15: "GPU lost: it fell off the bus; reboot the host",
    16: "GPU requires a reset",
    17: "GPU blocked by the operating system",
    18: "driver/library version mismatch: the driver was updated; reboot, or reload its kernel module",
    20: "NVML out of memory",
    23: "insufficient resources",
    27: "driver not in a ready state",
    28: "no GPU found",
    999: "NVML reports an unknown error; look for Xid in the kernel log",
}
# Any of these from one reading means that the whole device is gone, not that the reading is missing.
DEVICE_GONE = (15, 16, 17, 999)

# Bits of the clocks' event reasons that slow a GPU down for a bad reason (power cap and idle are normal).
THROTTLE = {
    0x08: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}


def fault_text(error: Any) -> str:
    """An NVMLError in plain words."""
    code = int(getattr(error, "value", 999))
    return FAULTS.get(code) or f"NVML error {code}: {error}"


class Nvml:
    """NVML through pynvml; initialised again after a fault of the whole library."""

    def __init__(self) -> None:
        import pynvml

        self.api: Any = pynvml
        self.ready = False

    def read(self) -> dict[str, Any]:
        """{"driver", "gpus"} or {"fault", "code"}."""
        api = self.api
        try:
            if not self.ready:
                api.nvmlInit()
                self.ready = True
            count = api.nvmlDeviceGetCount()
            driver = text(api.nvmlSystemGetDriverVersion())
        except api.NVMLError as error:
            self.close()
            return {"fault": fault_text(error), "code": int(error.value)}
        return {"driver": driver, "cuda": self.cuda(), "gpus": [self.gpu(index) for index in range(count)]}

    def cuda(self) -> str:
        """The newest CUDA that the driver runs, '' where it does not tell."""
        try:
            number = int(self.api.nvmlSystemGetCudaDriverVersion_v2())
        except self.api.NVMLError:
            return ""
        return f"{number // 1000}.{number % 1000 // 10}"

    def close(self) -> None:
        """Forgets the library's state, so that the next reading starts afresh."""
        self.ready = False
        try:
            self.api.nvmlShutdown()
        except self.api.NVMLError:
            return

    def gpu(self, index: int) -> dict[str, Any]:
        """One device; a reading that fails is named in `missing`, a lost device in `fault`."""
        api = self.api
        out: dict[str, Any] = {"index": index}
        missing: dict[str, str] = {}
        gone: list[str] = []
        try:
            handle = api.nvmlDeviceGetHandleByIndex(index)
        except api.NVMLError as error:
            return {"index": index, "fault": fault_text(error)}

        def take(name: str, call: Callable[..., Any], *args: Any) -> Any:
            try:
                return call(handle, *args)
            except api.NVMLError as error:
                missing[name] = fault_text(error)
                if error.value in DEVICE_GONE:
                    gone.append(missing[name])
                return None

        out["name"] = text(take("name", api.nvmlDeviceGetName))
        out["uuid"] = text(take("uuid", api.nvmlDeviceGetUUID))
        out.update(self.memory(handle, missing, gone))
        util = take("util", api.nvmlDeviceGetUtilizationRates)
        out["util"] = None if util is None else int(util.gpu)
        out["temp"] = take("temp", api.nvmlDeviceGetTemperature, 0)
        for name, call in (
            ("power", api.nvmlDeviceGetPowerUsage),
            ("power_limit", api.nvmlDeviceGetEnforcedPowerLimit),
        ):
            milliwatts = take(name, call)
            out[name] = None if milliwatts is None else milliwatts / 1000
        out["processes"] = self.processes(take)
        out.update(self.health(handle))
        out.update(self.kind(handle))
        if gone:
            out["fault"] = gone[0]
        out["missing"] = missing
        return out

    def memory(self, handle: Any, missing: dict[str, str], gone: list[str]) -> dict[str, Any]:
        """total, used, free in bytes. Version 2 leaves the driver's reserve out of `used`; old drivers lack it."""
        api, memory = self.api, None
        for version in ((api.nvmlMemory_v2,), ()):
            try:
                memory = api.nvmlDeviceGetMemoryInfo(handle, *version)
                missing.pop("memory", None)
                break
            except api.NVMLError as error:
                missing["memory"] = fault_text(error)
                if error.value in DEVICE_GONE:
                    gone.append(missing["memory"])
                    break
                if error.value == 3 and not version:
                    return {"unified": True}
        if memory is None:
            return {}
        return {"total": int(memory.total), "used": int(memory.used), "free": int(memory.free)}

    def processes(self, take: Callable[..., Any]) -> list[dict[str, Any]]:
        """Compute and graphics processes, each pid once."""
        found: dict[int, Any] = {}
        api = self.api
        for name, call in (
            ("processes", api.nvmlDeviceGetComputeRunningProcesses),
            ("graphics", api.nvmlDeviceGetGraphicsRunningProcesses),
        ):
            for process in take(name, call) or ():
                if found.get(process.pid) is None:
                    found[int(process.pid)] = process.usedGpuMemory
        return [{"pid": pid, "used": used} for pid, used in sorted(found.items())]

    def kind(self, handle: Any) -> dict[str, Any]:
        """Compute capability and PCI address: what code it runs, and what the kernel's log calls it."""
        api = self.api
        out: dict[str, Any] = {}
        try:
            out["capability"] = "{}.{}".format(*api.nvmlDeviceGetCudaComputeCapability(handle))
        except api.NVMLError:
            out["capability"] = ""
        try:
            out["pci"] = text(api.nvmlDeviceGetPciInfo(handle).busId)
        except api.NVMLError:
            out["pci"] = ""
        return out

    def health(self, handle: Any) -> dict[str, Any]:
        """Throttling and uncorrected ECC errors, where the device has them; most lack one or the other."""
        api = self.api
        out: dict[str, Any] = {}
        try:
            reasons = int(api.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
            out["throttle"] = [word for bit, word in THROTTLE.items() if reasons & bit]
        except api.NVMLError:
            out["throttle"] = []
        try:
            out["ecc_errors"] = int(api.nvmlDeviceGetTotalEccErrors(handle, 1, 0))
        except api.NVMLError:
            out["ecc_errors"] = None
        return out


def text(value: Any) -> str:
    """Text of what NVML calls a string (bytes in older pynvml)."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def source(first: str) -> Callable[[], dict[str, Any]]:
    """A function that reads once: NVML, with nvidia-smi where the library cannot load."""
    from ddtree_console.hostside import nvidia_smi

    if first == "smi":
        return nvidia_smi.read
    try:
        nvml = Nvml()
    except (ImportError, OSError, AttributeError) as error:
        why = f"NVML cannot load: {error}"
        return lambda: nvidia_smi.instead(why)

    def both() -> dict[str, Any]:
        raw = nvml.read()
        if raw.get("code") == 12:
            return nvidia_smi.instead(str(raw["fault"]))
        return {"source": "nvml", **raw}

    return both


def die_with_parent() -> None:
    """A child that hangs in the driver must not outlive a watcher that was killed."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    except (OSError, AttributeError):
        return


def main() -> int:
    """Answers until EOF."""
    die_with_parent()
    read = source(sys.argv[1] if len(sys.argv) > 1 else "nvml")
    while sys.stdin.readline():
        sys.stdout.write(json.dumps(read()) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.exit(main())
