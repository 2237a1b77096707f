"""The GPU check over a real connection to a lab host. Its GPUs are the NVML double: the check meets no torch there."""

from __future__ import annotations

from typing import Any

import pytest

from ddtree_console.services import gpu_check
from ddtree_console.services.errors import HostError
from ddtree_console.services.plans import Operator
from ddtree_console.transport import carried
from tests.contract.consoles import Screen, fleet_of, screen
from tests.contract.real import LabSide
from tests.lab.fixtures import Hosts

pytestmark = pytest.mark.lab
GPU = "driver 550.54.15\ncount 1\n0.name A6000\n0.uuid GPU-1\n0.total 51000000000\n0.used 1000000\n"


async def told(see: Screen, **more: Any) -> list[dict[str, Any]]:
    """The rows of a check of GPU 0."""
    host = see.console.fleet.hosts[0]
    gpu, service, profile = gpu_check.choose(host, see.console.fleet.profiles, None, "")
    ask = gpu_check.Ask(gpu, service, profile, **more)
    commands = see.console.monitor.hosts[host.name].commands
    rows = gpu_check.run(commands, host, ask, carried.kernels(), Operator("ops@laptop"))
    return [row async for row in rows]


async def test_the_check_is_carried_there_and_says_what_is_missing(hosts: Hosts) -> None:
    machine = hosts["h1"]  # once: each look gives it as new
    side = LabSide(machine)
    machine.nvml(GPU)
    try:
        async with screen(await fleet_of(side, gpus=(0,))) as see:
            await see.up()
            rows = await told(see, limit=60)
            assert (rows[0]["began"], rows[0]["uuid"]) == (0, "GPU-1")
            assert (rows[1]["stage"], rows[1]["state"]) == ("torch", "fail")
            assert "No module named 'torch'" in rows[1]["evidence"]
            assert rows[-1]["ended"] == {"status": 1, "why": "", "tail": "", "left": ""}
            folder = side.path(f"/opt/ddtree-console/{carried.kernels().hash}")
            assert folder.stat().st_uid == 0
            assert all(file.stat().st_mode & 0o022 == 0 for file in (folder, *folder.rglob("*")))
            machine.nvml(GPU + "0.proc 1:536870912\n")
            with pytest.raises(HostError) as refused:
                await told(see)
            assert refused.value.code == 7
            assert "GPU 0 is in use by" in refused.value.cause
            assert "pid 1" in refused.value.cause
    finally:
        machine.nvml(None)
