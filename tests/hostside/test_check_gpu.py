"""A slot's GPUs: whose they are, and what the kernel's log says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtree_console.domain.snapshot import Gpu, GpuProcess, GpuReport, UnitState
from ddtree_console.hostside import check_cuda, check_gpu
from ddtree_console.hostside.watch_config import Slot

GIB = 1 << 30
SLOT, UNIT = Slot("qwen", "q.service", 30000, (0,)), UnitState("q.service", active="active")


def gpu(**more: object) -> Gpu:
    values = {"index": 0, "name": "A6000", "total": 48 * GIB, "used": 0, **more}
    return Gpu(**values)  # type: ignore[arg-type]


def process(unit: str, name: str = "python3") -> GpuProcess:
    return GpuProcess(77, 8 * GIB, "ann", name, unit)


@pytest.mark.parametrize(
    ("device", "state", "said"),
    [
        (gpu(), "ok", "free"),
        (gpu(processes=(process("q.service"),)), "ok", "ours"),
        (gpu(processes=(process("other.service"),)), "ok", "shared"),
        (gpu(processes=(process("x.service"),)), "fail", "python3 (pid 77, ann, x.service, 8.0 GiB) uses it"),
        (gpu(processes=(process("", ""),)), "unknown", "a container?"),
        (gpu(used=9 * GIB), "warn", "9.0 GiB used by nobody that the driver names"),
        (gpu(ecc_errors=3), "warn", "3 uncorrected memory errors"),
        (gpu(throttle=("thermal (hardware)",)), "warn", "slowed down: thermal (hardware)"),
        (gpu(fault="GPU lost"), "fail", "GPU lost"),
    ],
)
def test_whose_a_gpu_is_and_how_it_is(device: Gpu, state: str, said: str) -> None:
    found = check_gpu.gpus(SLOT, UNIT, GpuReport("nvml", gpus=(device,)), ("other.service",))
    assert found.state == state
    assert said in found.evidence
    assert bool(found.remedy) == (state in ("warn", "fail"))


LOG = """6,1,1,-;usb 1-1: new device
4,2,2,-;NVRM: Xid (PCI:0000:41:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
4,3,3,-;NVRM: Xid (PCI:0000:41:00): 13, pid=1234, Graphics Exception
4,4,4,-;NVRM: Xid (PCI:0000:42:00): 48, pid=99, DBE
4,5,5,-;NVRM: Xid (PCI:0000:42:00): 48, pid=99, DBE
"""


def test_device_errors_in_the_kernels_log(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text(LOG)
    mine, other = gpu(pci="00000000:41:00.0"), gpu(index=1, pci="00000000:42:00.0")
    report = GpuReport("nvml", gpus=(mine, other))
    found = check_gpu.health(SLOT, report, str(log))
    assert (found.state, found.evidence) == ("warn", "GPU 0: Xid 79, it fell off the bus")
    both = Slot("qwen", "q.service", 30000, (0, 1))
    assert "GPU 1: Xid 48, double-bit memory error (2 times)" in check_gpu.health(both, report, str(log)).evidence
    # addresses that the driver does not tell: every device's errors are shown
    nameless = GpuReport("nvidia-smi", gpus=(gpu(),))
    assert "0000:42:00: Xid 48" in check_gpu.health(SLOT, nameless, str(log)).evidence
    log.write_text(LOG.splitlines()[0])
    assert check_gpu.health(SLOT, report, str(log)).state == "ok"
    assert check_gpu.health(SLOT, report, str(tmp_path / "none")).state == "unknown"


@pytest.mark.parametrize(
    ("told", "name", "arch"),
    [
        ("9.0", "", 90), ("12.0", "anything", 120), ("", "NVIDIA H200", 90), ("", "NVIDIA RTX A6000", 86),
        ("", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 120), ("", "NVIDIA A100-SXM4-80GB", 80),
        ("", "NVIDIA L40S", 89), ("", "NVIDIA GeForce RTX 5090", 120), ("", "Tesla T4", 75), ("", "Odd", None),
    ],
)  # fmt: skip
def test_compute_capability(told: str, name: str, arch: int | None) -> None:
    assert check_cuda.capability(told, name) == arch
