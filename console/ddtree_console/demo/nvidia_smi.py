"""The sandbox's `nvidia-smi`: CSV queries about GPUs that do not exist.

Nothing is invented: memory is what the replayed recording's own log says (`avail mem=` of the H200 it was made on);
where nothing was recorded the answer is [N/A], as for utilisation, temperature and power.
"""

from __future__ import annotations

from dataclasses import dataclass

from ddtree_console.demo.control import Call
from ddtree_console.demo.service import Service
from ddtree_console.demo.supervisor import Supervisor

# The recorded H200 (nvml-h200.json): its memory, what the driver keeps, and what was used beside its one process.
# No comma: the answer is CSV, which nvidia-smi does not quote.
NAME = "NVIDIA H200 (recorded)"
TOTAL = 150754820096
RESERVED = 644939776
IDLE = 1626144768 - 1616904192
DRIVER = "580.159.04"
MIB = 1 << 20
NA = "[N/A]"


@dataclass(frozen=True)
class _Use:
    service: Service
    used: int | None


class NvidiaSmi:
    """One host's nvidia-smi with `gpus` devices."""

    def __init__(self, machine: Supervisor, gpus: int) -> None:
        self._machine, self._gpus = machine, gpus

    async def __call__(self, call: Call) -> int:
        """The exit status."""
        asked = dict(arg.lstrip("-").partition("=")[::2] for arg in call.args)
        form = asked.get("format", "").split(",")
        for query, row in (("query-gpu", self._gpu_rows), ("query-compute-apps", self._app_rows)):
            if query in asked:
                fields = asked[query].split(",")
                if "noheader" not in form:
                    call.out(", ".join(fields))
                for cells in row():
                    unknown = [name for name in fields if name not in cells and name not in _UNRECORDED]
                    if unknown:
                        call.out(f'Field "{unknown[0]}" is not a valid field to query.')
                        return 2
                    call.out(", ".join(self._cell(name, cells.get(name, NA), form) for name in fields))
                return 0
        if call.args in ([], ["-L"]):
            for index in range(self._gpus):
                call.out(f"GPU {index}: {NAME} (UUID: {self._uuid(index)})")
            return 0
        call.err("nvidia-smi: the sandbox answers --query-gpu, --query-compute-apps and -L only")
        return 2

    @staticmethod
    def _cell(name: str, value: str, form: list[str]) -> str:
        return f"{value} MiB" if "memory" in name and value.isdigit() and "nounits" not in form else value

    def _uuid(self, index: int) -> str:
        return f"GPU-00000000-0000-0000-{sum(self._machine.name.encode()) & 0xFFFF:04x}-{index:012x}"

    def _uses(self) -> dict[int, list[_Use]]:
        """GPU -> services on it. The recordings know one GPU only: further ones of a slot are used by an unknown
        amount."""
        found: dict[int, list[_Use]] = {}
        for service in self._machine.running():
            if service.available is None:
                continue
            devices = [d for d in service.config.env.get("CUDA_VISIBLE_DEVICES", "0").split(",") if d.isdigit()]
            used = max(0, TOTAL - RESERVED - IDLE - int(service.available * (1 << 30)))
            for place, device in enumerate(devices):
                found.setdefault(int(device), []).append(_Use(service, None if place else used))
        return found

    def _gpu_rows(self) -> list[dict[str, str]]:
        uses = self._uses()
        rows = []
        for index in range(self._gpus):
            amounts = [use.used for use in uses.get(index, [])]
            known = all(amount is not None for amount in amounts)
            used = IDLE + sum(amount or 0 for amount in amounts)
            rows.append(
                {
                    "index": str(index),
                    "name": NAME,
                    "uuid": self._uuid(index),
                    "driver_version": DRIVER,
                    "memory.total": str(TOTAL // MIB),
                    "memory.reserved": str(RESERVED // MIB),
                    "memory.used": str(used // MIB) if known else NA,
                    "memory.free": str(max(0, TOTAL - RESERVED - used) // MIB) if known else NA,
                }
            )
        return rows

    def _app_rows(self) -> list[dict[str, str]]:
        return [
            {
                "gpu_uuid": self._uuid(index),
                "gpu_name": NAME,
                "pid": str(use.service.main_pid),
                "process_name": use.service.config.start[0].argv[0],
                "used_memory": NA if use.used is None else str(use.used // MIB),
                "used_gpu_memory": NA if use.used is None else str(use.used // MIB),
            }
            for index, users in sorted(self._uses().items())
            for use in users
            if index < self._gpus
        ]


_UNRECORDED = frozenset(
    {
        *("utilization.gpu", "utilization.memory", "temperature.gpu", "temperature.memory", "power.draw"),
        *("power.limit", "enforced.power.limit", "clocks.sm", "clocks.mem", "fan.speed", "pstate"),
        *("clocks_throttle_reasons.active", "clocks_event_reasons.active", "ecc.errors.uncorrected.volatile.total"),
        *("pci.bus_id", "compute_mode", "mig.mode.current", "count"),
    }
)
