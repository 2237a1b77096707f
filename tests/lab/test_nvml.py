"""The NVML double: held to what a real H200 answered, and every fault by its name."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab.fixtures import Hosts
from tests.lab.host import Host

pytestmark = pytest.mark.lab
NVML = Path(__file__).resolve().parent / "nvml"
TWO = (NVML / "two-gpus.conf").read_text()


def probe(host: Host) -> dict[str, Any]:
    """What the host's own python reads with the real nvidia-ml-py, over SSH."""
    spec = importlib.util.find_spec("pynvml")
    assert spec is not None
    assert spec.origin is not None
    host.write("/opt/lab/pynvml.py", Path(spec.origin).read_bytes())
    host.write("/opt/lab/probe.py", (NVML / "probe.py").read_bytes())
    read: dict[str, Any] = json.loads(host.ssh("/usr/bin/python3 -B /opt/lab/probe.py").stdout)
    return read


def test_the_double_answers_as_a_real_h200_did(hosts: Hosts) -> None:
    host = hosts["h1"]
    host.nvml((NVML / "h200.conf").read_text())
    golden = json.loads((NVML / "golden-h200.json").read_text())
    # every key, type, struct version, error code and text; the values too, since h200.conf holds that GPU's
    assert probe(host) == golden


FAULTS: list[tuple[str, str | None, Callable[[dict[str, Any]], Any], Any]] = [
    ("memory in use", TWO, lambda o: o["gpus"][0]["mem2"]["used"], 1 << 30),
    ("process memory not available", TWO, lambda o: o["gpus"][0]["procs"][1]["used"], None),
    ("no driver", None, lambda o: o["init"]["type"], "NVMLError_DriverNotLoaded"),
    ("mismatch", TWO + "err.nvmlInit_v2 18\n", lambda o: o["init"]["type"], "NVMLError_LibRmVersionMismatch"),
    ("lost", TWO + "1.err 15\n", lambda o: o["gpus"][1]["type"], "NVMLError_GpuIsLost"),
    ("the other one", TWO + "1.err 15\n", lambda o: o["gpus"][0]["temp"], 41),
    (
        "not supported",
        TWO + "0.err.nvmlDeviceGetTemperature 3\n",
        lambda o: o["gpus"][0]["temp"]["type"],
        "NVMLError_NotSupported",
    ),
    (
        "unknown",
        TWO + "0.err.nvmlDeviceGetMemoryInfo 999\n",
        lambda o: o["gpus"][0]["mem1"]["type"],
        "NVMLError_Unknown",
    ),
]


def test_every_fault_by_its_name(hosts: Hosts) -> None:
    host = hosts["h1"]
    for name, text, look, expected in FAULTS:
        host.nvml(text)
        assert look(probe(host)) == expected, name


def test_no_library(hosts: Hosts) -> None:
    host = hosts["h1"]
    host.nvml(TWO)
    host.no_nvml()
    assert probe(host)["init"]["type"] == "NVMLError_LibraryNotFound"


def test_a_hanging_driver(hosts: Hosts) -> None:
    host = hosts["h1"]
    host.nvml(TWO + "hang.nvmlDeviceGetPowerUsage 300\n")
    began = float(host.ssh("cat /proc/uptime").stdout.split()[0])
    probe(host)
    assert float(host.ssh("cat /proc/uptime").stdout.split()[0]) - began > 0.6
