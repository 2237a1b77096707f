"""Type=notify in a sandbox as systemd 252 has it: active once the service says so, failed when it ends before."""

from __future__ import annotations

import asyncio

from ddtree_console.demo.host import SandboxHost
from tests.demo.helpers import ok, show, unit, until

SAY = (
    "import os, socket, sys, time; address = os.environ['NOTIFY_SOCKET']; time.sleep(float(sys.argv[1]))\n"
    "channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
    "channel.sendto(b'STATUS=loading', chr(0) + address[1:])\n"
    "channel.sendto(b'READY=1\\nSTATUS=up', chr(0) + address[1:]) if sys.argv[2] == 'ready' else None\n"
    "time.sleep(float(sys.argv[3]))\n"
)


def service(host: SandboxHost, arguments: str, more: str = "") -> None:
    script = host.write("/opt/say.py", SAY)
    unit(host, "x", f"exec python3 -IS {script} {arguments}", f"Type=notify\n{more}")


async def test_it_is_active_once_it_says_so(host: SandboxHost) -> None:
    service(host, "0.2 ready 60")
    await ok(host, "systemctl start --no-block x")
    await until(lambda: host.machine.units["x.service"].active == "activating")
    state = await show(host, "x", "ActiveState", "SubState", "Type")
    assert state == {"ActiveState": "activating", "SubState": "start", "Type": "notify"}
    await ok(host, "systemctl start x")
    assert (await show(host, "x", "ActiveState", "SubState")) == {"ActiveState": "active", "SubState": "running"}
    journal = host.journal("x.service")
    assert journal.index("Starting x.service - Unit x...") < journal.index("Started x.service - Unit x.")
    await ok(host, "systemctl stop x")
    assert (await show(host, "x", "ActiveState", "Result")) == {"ActiveState": "inactive", "Result": "success"}


async def test_one_that_ends_before_fails_its_start(host: SandboxHost) -> None:
    service(host, "0 silent 0")
    assert (await host.exec("systemctl start x")).returncode == 1
    assert (await show(host, "x", "ActiveState", "Result")) == {"ActiveState": "failed", "Result": "protocol"}
    unit(host, "x", "exit 3", "Type=notify\n")
    await ok(host, "systemctl daemon-reload")
    assert (await host.exec("systemctl start x")).returncode == 1
    assert (await show(host, "x", "Result", "ExecMainStatus")) == {"Result": "exit-code", "ExecMainStatus": "3"}


async def test_one_that_is_silent_too_long_is_ended(host: SandboxHost) -> None:
    service(host, "0 silent 60", "TimeoutStartSec=200ms\n")
    assert (await host.exec("systemctl start x")).returncode == 1
    assert (await show(host, "x", "ActiveState", "Result")) == {"ActiveState": "failed", "Result": "timeout"}


async def test_it_can_be_stopped_while_it_starts(host: SandboxHost) -> None:
    service(host, "60 ready 60", "TimeoutStartSec=infinity\n")
    starting = asyncio.create_task(host.exec("systemctl start x"))
    await until(lambda: "x.service" in host.machine.units and host.machine.units["x.service"].main_pid)
    await ok(host, "systemctl stop x")
    assert (await starting).returncode == 1
    assert (await show(host, "x", "ActiveState", "Result")) == {"ActiveState": "inactive", "Result": "success"}
