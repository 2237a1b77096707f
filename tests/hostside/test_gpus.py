"""GPU readings: the real child and the real nvidia-ml-py, over a library that answers from a text file."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddtree_console.hostside import gpu_report
from ddtree_console.hostside.gpus import GpuReader
from ddtree_console.hostside.roots import Roots
from tests.hostside.support import FakeHost, gone

DOUBLE = Path(__file__).parents[1] / "lab/nvml/nvml_double.c"
ONE = f"""driver 550.54.15
count 1
0.name NVIDIA H200
0.uuid GPU-1
0.total 150754820096
0.reserved 634388480
0.used 1073741824
0.gpu 37
0.mem 12
0.temp 41
0.power 118600
0.limit 700000
0.proc {os.getpid()}:536870912
0.proc 4194304:-
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the double."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to build the NVML double")
    folder = tmp_path_factory.mktemp("nvml")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(DOUBLE)], check=True)
    return folder


@pytest.fixture
def answers(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The text file that the double answers from."""
    file = tmp_path / "answers"
    file.write_text(ONE)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("LAB_NVML", str(file))
    return file


@pytest.fixture
def reader() -> Iterator[GpuReader]:
    """A reader with short deadlines."""
    made = GpuReader(Roots(), deadline=0.5, first_deadline=10)
    yield made
    made.close()


def test_a_whole_device_with_its_processes_and_their_owners(answers: Path, reader: GpuReader) -> None:
    report = reader.read()
    assert (report.source, report.driver, report.fault) == ("nvml", "550.54.15", None)
    (gpu,) = report.gpus
    assert (gpu.name, gpu.util, gpu.temp, gpu.power, gpu.power_limit) == ("NVIDIA H200", 37, 41, 119, 700)
    assert (gpu.total, gpu.used) == (150754820096, 1073741824)
    assert gpu.free == 150754820096 - 1073741824 - 634388480
    ours, unknown = gpu.processes
    assert (ours.pid, ours.used, ours.user) == (os.getpid(), 536870912, pwd.getpwuid(os.getuid()).pw_name)
    assert ours.name
    assert (unknown.pid, unknown.used, unknown.user, unknown.name) == (4194304, None, "", "")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("err.nvmlInit_v2 18", "driver/library version mismatch"),
        ("err.nvmlInit_v2 9", "NVIDIA driver not loaded"),
        ("err.nvmlInit_v2 999", "unknown error"),
        ("err.nvmlDeviceGetCount_v2 27", "not in a ready state"),
    ],
)
def test_a_fault_of_the_library_is_named_and_ends(answers: Path, reader: GpuReader, line: str, said: str) -> None:
    answers.write_text(f"{ONE}{line}\n")
    report = reader.read()
    assert said in str(report.fault)
    assert report.gpus == ()
    answers.write_text(ONE)
    assert reader.read().fault is None


def test_a_lost_gpu_is_named_and_the_other_still_read(answers: Path, reader: GpuReader) -> None:
    answers.write_text(ONE.replace("count 1", "count 2") + "1.err 15\n")
    one, lost = reader.read().gpus
    assert (one.temp, one.fault) == (41, None)
    assert "GPU lost" in str(lost.fault)


def test_a_reading_that_fails_is_missing_alone(answers: Path, reader: GpuReader) -> None:
    answers.write_text(f"{ONE}0.err.nvmlDeviceGetTemperature 3\n0.err.nvmlDeviceGetPowerUsage 4\n")
    (gpu,) = reader.read().gpus
    assert (gpu.temp, gpu.power, gpu.util) == (None, None, 37)
    assert dict(gpu.missing) == {"temp": "not supported", "power": "no permission"}
    assert gpu.fault is None


def test_unified_memory_is_shown_as_the_hosts(answers: Path, reader: GpuReader) -> None:
    answers.write_text(f"{ONE}0.err.nvmlDeviceGetMemoryInfo_v2 3\n0.err.nvmlDeviceGetMemoryInfo 3\n")
    (gpu,) = reader.read().gpus
    memory = gpu_report.host_memory(Roots())
    assert memory is not None
    assert gpu.unified
    assert gpu.total == memory[0]
    assert "memory" not in gpu.missing


def test_an_old_driver_without_the_newer_memory_call(answers: Path, reader: GpuReader) -> None:
    answers.write_text(f"{ONE}0.err.nvmlDeviceGetMemoryInfo_v2 13\n")
    (gpu,) = reader.read().gpus
    assert gpu.total == 150754820096
    assert not gpu.unified


def test_a_hanging_driver_costs_one_deadline_and_heals(answers: Path, reader: GpuReader) -> None:
    assert reader.read().fault is None
    answers.write_text(f"{ONE}hang.nvmlDeviceGetTemperature 60000\n")
    began = time.monotonic()
    assert "does not answer" in str(reader.read().fault)
    assert time.monotonic() - began < 3
    answers.write_text(ONE)
    end = time.monotonic() + 5
    while (report := reader.read()).fault is not None and time.monotonic() < end:
        continue  # the killed child is being reaped; each try is its own short wait
    assert report.fault is None


def test_a_killed_child_is_named_and_replaced(answers: Path, reader: GpuReader) -> None:
    assert reader.ask() is None
    assert reader._child is not None
    reader._child.kill()
    reader._child.wait()
    assert "started again" in str(reader.read().fault)
    assert reader.read().fault is None


def test_close_leaves_no_child(answers: Path, reader: GpuReader) -> None:
    reader.read()
    assert reader._child is not None
    pid = reader._child.pid
    reader.close()
    assert gone(pid)


SMI = """import sys
if "--query-gpu" in sys.argv[1]:
    print("0, NVIDIA A6000, GPU-1, 550.1, 49140, 1024, 48116, 12, 40, 71.30, 300.00")
    print("1, NVIDIA A6000, GPU-2, 550.1, 49140, 0, 49140, [N/A], 38, [Not Supported], 300.00")
else:
    print("GPU-2, 77, 512")
"""


@pytest.fixture
def no_library(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    """A host whose NVML is switched off, with its shims first in PATH."""
    monkeypatch.setenv("PATH", host.env["PATH"])
    return host


def test_nvidia_smi_where_the_library_is_not(no_library: FakeHost) -> None:
    no_library.shim("nvidia-smi", SMI)
    reader = GpuReader(no_library.roots)
    report = reader.read()
    reader.close()
    assert (report.source, report.driver) == ("nvidia-smi", "550.1")
    first, second = report.gpus
    assert (first.total, first.used, first.util, first.power) == (49140 * 1024**2, 1024**3, 12, 71)
    assert dict(second.missing) == {"util": "n/a", "power": "not supported"}
    assert [(p.pid, p.used) for p in second.processes] == [(77, 512 * 1024**2)]


def test_nvidia_smi_that_fails_says_so_in_its_own_words(no_library: FakeHost) -> None:
    no_library.shim("nvidia-smi", "import sys\nprint('NVIDIA-SMI has failed: no driver')\nsys.exit(9)\n")
    reader = GpuReader(no_library.roots)
    report = reader.read()
    reader.close()
    assert report.fault == "nvidia-smi: NVIDIA-SMI has failed: no driver"


def test_neither(no_library: FakeHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reader = GpuReader(no_library.roots)
    report = reader.read()
    reader.close()
    assert report.source == "none"
    assert "no NVIDIA driver" in str(report.fault)
