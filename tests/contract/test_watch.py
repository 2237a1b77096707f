"""hello and the watcher: the same first state from both, and each change."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ddtree_console.transport.base import Transport
from tests.contract.code import Argv
from tests.contract.messages import Messages, kind
from tests.contract.real import RealHost

BOOT_ID = "/proc/sys/kernel/random/boot_id"
UNIT = "sglang-qwen.service"
SERVER = """import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(404)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def config(real_host: RealHost) -> dict[str, Any]:
    """The watcher's configuration for one slot, quick."""
    slot = {"service": "qwen", "unit": UNIT, "port": real_host.port, "gpus": [0], "engine": "sglang", "probe": False}
    return {"v": 1, "services": [slot], "gpu_interval": 0.5, "unit_interval": 0.3, "http_interval": 0.5}


@pytest.fixture
async def watcher(real_host: RealHost, transport: Transport, argv: Argv) -> AsyncIterator[Messages]:
    """A watcher that has its configuration."""
    process = await transport.start(argv("watch"))
    await process.send(json.dumps(config(real_host)).encode())
    yield Messages(process)
    await process.close()


async def test_hello_says_who_and_where(transport: Transport, argv: Argv, real_host: RealHost) -> None:
    done = await transport.run(argv("hello"))
    hello = json.loads(done.stdout)
    assert hello["v"] == 1
    assert hello["boot"] == real_host.path("/boot_id" if real_host.kind == "sandbox" else BOOT_ID).read_text().strip()
    assert tuple(map(int, hello["python"].split(".")[:2])) >= (3, 9)
    assert hello["systemd"]


async def test_the_first_state_comes_within_a_second_of_its_start(watcher: Messages) -> None:
    began = time.monotonic()
    hello = await watcher.until(kind("hello"))
    assert "privileged" in hello
    for name in ("units", "ports", "releases", "locks"):
        if not any(message.get("kind") == name for message in watcher.all):
            await watcher.until(kind(name))
    assert time.monotonic() - began < 2.0  # 1 s on an idle machine: a test may share its cores
    units = next(message for message in watcher.all if message.get("kind") == "units")
    assert units["units"][UNIT]["load"] == "not-found"


async def test_a_unit_that_starts_and_fails_is_told(watcher: Messages, real_host: RealHost) -> None:
    real_host.write("/opt/lab/server.py", SERVER)
    python = (await real_host.exec("command -v python3")).strip()
    line = f"{python} {real_host.remote('/opt/lab/server.py')} {real_host.port}"
    real_host.write(f"/etc/systemd/system/{UNIT}", f"[Service]\nExecStart={line}\n")
    await real_host.exec(f"systemctl daemon-reload && systemctl start {UNIT}")

    def active(message: dict[str, Any]) -> bool:
        return kind("units")(message) and bool(message["units"][UNIT]["active"] == "active")

    state = (await watcher.until(active))["units"][UNIT]
    assert state["sub"] == "running"
    assert state["invocation"]
    assert state["main_pid"] > 0

    def ours(message: dict[str, Any]) -> bool:
        return kind("ports")(message) and bool(message["ports"]["qwen"]["state"] == "ours")

    if not any(ours(message) for message in watcher.all):
        await watcher.until(ours)

    await real_host.exec(f"systemctl kill -s KILL {UNIT}")

    def failed(message: dict[str, Any]) -> bool:
        return kind("units")(message) and bool(message["units"][UNIT]["active"] == "failed")

    state = (await watcher.until(failed))["units"][UNIT]
    assert state["result"] == "signal"
    assert (state["exit_code"], state["exit_status"]) == (2, 9)


async def test_a_foreign_listener_is_told(watcher: Messages, real_host: RealHost) -> None:
    real_host.write("/opt/lab/server.py", SERVER)
    python = (await real_host.exec("command -v python3")).strip()
    line = f"{python} {real_host.remote('/opt/lab/server.py')} {real_host.port}"
    real_host.write("/etc/systemd/system/other.service", f"[Service]\nExecStart={line}\n")
    await real_host.exec("systemctl daemon-reload && systemctl start other.service")

    def foreign(message: dict[str, Any]) -> bool:
        return kind("ports")(message) and bool(message["ports"]["qwen"]["state"] == "foreign")

    listener = (await watcher.until(foreign))["ports"]["qwen"]
    assert listener["pid"] > 0
    assert listener["command"].startswith("python3")


async def test_gpus_are_told_with_their_source(watcher: Messages) -> None:
    report = await watcher.until(kind("gpus"))
    assert report["source"] in ("nvml", "nvidia-smi", "none")
    assert report["gpus"] or report["fault"]


async def test_the_watcher_ends_with_its_stdin(transport: Transport, argv: Argv, real_host: RealHost) -> None:
    process = await transport.start(argv("watch"))
    await process.send(json.dumps(config(real_host)).encode())
    await Messages(process).until(kind("units"))
    await process.close()
    assert (await process.wait())[0] in (0, None)
    left = await real_host.exec("cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' ' || true")
    assert " ".join(argv("watch")) not in left
