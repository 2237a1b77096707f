"""Waiting on a sandbox host, and reading what its tools print."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from ddtree_console.demo.host import Completed, SandboxHost


async def until(true: Callable[[], object], timeout: float = 10.0) -> None:
    """Waits until it holds; TimeoutError otherwise."""
    end = time.monotonic() + timeout
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("it did not come true")
        await asyncio.sleep(0.01)


async def show(host: SandboxHost, unit: str, *names: str) -> dict[str, str]:
    """`systemctl show` of one unit as a mapping."""
    done = await host.exec(f"systemctl show {unit} -p {','.join(names)}")
    return dict(line.partition("=")[::2] for line in done.stdout.splitlines())


async def ok(host: SandboxHost, command: str) -> str:
    """stdout of a command that must succeed."""
    done: Completed = await host.exec(command)
    assert done.returncode == 0, done
    return done.stdout


def unit(host: SandboxHost, name: str, command: str, service: str = "", extra: str = "") -> Path:
    """Writes a unit whose ExecStart is a shell line."""
    quoted = command.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$").replace("%", "%%")
    text = f'[Unit]\nDescription=Unit {name}\n{extra}[Service]\nExecStart=/bin/sh -c "{quoted}"\n{service}'
    return host.write(f"/etc/systemd/system/{name}.service", text + "\n[Install]\nWantedBy=multi-user.target\n")


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return raw[raw.rindex(")") + 2] not in "ZX"
