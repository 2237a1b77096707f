"""One sandbox host: supervisor, shims, sshd and a back door for tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from ddtree_console.demo import shims
from ddtree_console.demo.control import Control
from ddtree_console.demo.journalctl import Journalctl
from ddtree_console.demo.nvidia_smi import NvidiaSmi
from ddtree_console.demo.small_tools import Analyze, Reboot
from ddtree_console.demo.ssh_server import SshHost
from ddtree_console.demo.supervisor import Supervisor
from ddtree_console.demo.systemctl import Systemctl
from ddtree_console.demo.systemd_run import SystemdRun

_ROOTS = ("etc", "run", "var", "opt", "cgroup", "boot_id")


@dataclass(frozen=True)
class Completed:
    """A finished command of the back door."""

    returncode: int
    stdout: str
    stderr: str


class SandboxHost:
    """A host under `root`. Nothing outside it is written; only its own children are ever signalled."""

    def __init__(self, name: str, root: Path, gpus: int, client_key: asyncssh.SSHKey, token: str) -> None:
        self.name, self.root = name, root
        self.token = f"{token}/{name}/{uuid.uuid4().hex}"
        self.machine = Supervisor(root, name, self.token)
        self.ssh = SshHost(root, self.machine.base_env, client_key)
        self.control = Control(
            root,
            {
                "systemctl": Systemctl(self.machine, self.reboot_soon),
                "journalctl": Journalctl(self.machine),
                "systemd-run": SystemdRun(self.machine),
                "systemd-analyze": Analyze(self.machine),
                "nvidia-smi": NvidiaSmi(self.machine, gpus),
                "reboot": Reboot(self.reboot_soon),
            },
        )
        self.roots_file = root / "roots.json"
        self._rebooting: asyncio.Task[None] | None = None

    def prepare(self) -> None:
        """Folders, tools and roots.json; nothing runs yet."""
        for folder in ("etc/systemd/system", "run", "var", "opt", "root"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        shims.install(self.root / "bin")
        roots = {name: str(self.root / name) for name in _ROOTS}
        self.roots_file.write_text(json.dumps({**roots, "proc": "/proc", "nvml": False}))

    async def boot(self) -> None:
        """Everything runs: units that are enabled, then sshd."""
        self.machine.boot()
        await self.control.open()
        await self.ssh.open()

    async def shut_down(self) -> None:
        """An orderly end. Transactions see a system that is stopping."""
        await self.ssh.close()
        await self.machine.shutdown()
        await self.control.close()

    async def end(self) -> None:
        """Quit: at once, and nothing is left."""
        if self._rebooting:
            self._rebooting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._rebooting
        await self.ssh.close(hard=True)
        await self.control.close()
        self.machine.power_off()

    def reboot_soon(self) -> None:
        """The reboot command: returns at once, the host goes down after that."""
        if self._rebooting is None or self._rebooting.done():
            self._rebooting = asyncio.create_task(self.reboot(), name=f"{self.name}/reboot")

    # --- back door

    async def reboot(self) -> None:
        """Orderly stop, new boot id, /run empty, enabled units started. Until sshd listens again."""
        await self.shut_down()
        await self.boot()

    async def power_loss(self) -> None:
        """All processes die at once and connections just end; then power comes back."""
        await self.ssh.close(hard=True)
        self.machine.power_off()
        await self.control.close()
        await self.boot()

    def path(self, path: str) -> Path:
        """Where the host's /etc/..., /run/..., /var/lib/ddtree-console/... lies."""
        for prefix, base in (("/var/lib/ddtree-console", "var"), ("/opt/ddtree-console", "opt")):
            if path == prefix or path.startswith(prefix + "/"):
                return self.root / base / path[len(prefix) :].lstrip("/")
        return self.root / path.lstrip("/")

    def write(self, path: str, text: str) -> Path:
        """Writes a file of the host, its folders too."""
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8", "surrogateescape")
        return target

    async def exec(self, command: str, stdin: str = "", timeout: float = 30.0) -> Completed:
        """A shell line on the host, as root would type it there. TimeoutError after `timeout` seconds."""
        process = (await self.ssh.start(["sh", "-c", command])).process
        try:
            out, err = await asyncio.wait_for(process.communicate(stdin.encode()), timeout)
        except TimeoutError:
            process.kill()
            raise
        return Completed(process.returncode or 0, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def journal(self, unit: str) -> list[str]:
        """Every message of a unit and about it, oldest first."""
        self.machine.drain()
        entries = self.machine.journal.forward(0)
        return [
            entry.message.decode("utf-8", "replace")
            for entry in entries
            if entry.get("_SYSTEMD_UNIT") == unit or entry.get("UNIT") == unit
        ]
