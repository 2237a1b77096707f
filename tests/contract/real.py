"""A host as the console sees it (a domain Host) with a back door; the sandbox's and the lab's side of it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Protocol

from ddtree_console.demo.host import SandboxHost
from ddtree_console.domain.spec import Host as HostSpec
from tests.lab.host import Host as LabMachine
from tests.lab.replay import DEMO, FOLDER, give_replayer


class RealHost(Protocol):
    """spec is what services and transport are given. port: free on that host."""

    kind: str
    spec: HostSpec
    port: int

    async def exec(self, command: str) -> str:
        """Standard output of a shell line run as root, not through the product; RuntimeError when it fails."""
        ...

    def path(self, path: str) -> Path:
        """Where a path of the host lies for this process."""
        ...

    def remote(self, path: str) -> str:
        """A path of the host as the host's own processes call it."""
        ...

    def write(self, path: str, text: str | bytes) -> None:
        """A whole file of the host, with its folders."""
        ...

    def replayer(self) -> str:
        """The replayer's path for the host's processes; it is there from now on."""
        ...

    async def reboot(self) -> None:
        """An orderly reboot, until sshd answers."""
        ...

    async def power_loss(self) -> None:
        """Power goes and comes back, until sshd answers."""
        ...


class SandboxSide:
    """RealHost over one host of the demo's sandbox."""

    kind = "sandbox"

    def __init__(self, spec: HostSpec, host: SandboxHost) -> None:
        self.spec, self._host = spec, host
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.path = host.path

    async def exec(self, command: str) -> str:
        done = await self._host.exec(command)
        if done.returncode:
            raise RuntimeError(f"{command}: {done.returncode}: {done.stderr}")
        return done.stdout

    def remote(self, path: str) -> str:
        return str(self._host.path(path))

    def write(self, path: str, text: str | bytes) -> None:
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode() if isinstance(text, str) else text)

    def replayer(self) -> str:
        return str(DEMO / "replayer.py")  # a sandbox's processes see this machine's files

    async def reboot(self) -> None:
        await self._host.reboot()

    async def power_loss(self) -> None:
        await self._host.power_loss()


class LabSide:
    """RealHost over a lab host."""

    kind = "lab"
    port = 30000

    def __init__(self, machine: LabMachine, user: str = "root") -> None:
        self.machine = machine
        self.spec = HostSpec(
            name=machine.name,
            address=machine.ip,
            user=user,
            identity=str(machine.key),
            known_hosts=str(machine.known_hosts),
        )
        self.path = machine.path

    async def exec(self, command: str) -> str:
        done = await asyncio.to_thread(self.machine.exec, command, check=False)
        if done.returncode:
            raise RuntimeError(f"{command}: {done.returncode}: {done.stderr}")
        return done.stdout

    def remote(self, path: str) -> str:
        return path

    def write(self, path: str, text: str | bytes) -> None:
        self.machine.write(path, text)

    def replayer(self) -> str:
        give_replayer(self.machine)
        return f"{FOLDER}/replayer.py"

    async def reboot(self) -> None:
        await asyncio.to_thread(self.machine.reboot)

    async def power_loss(self) -> None:
        await asyncio.to_thread(self.machine.crash)
        await asyncio.to_thread(self.machine.power_on)
