"""A small systemd for one sandbox host: units, journal, cgroup files, boots; asked by the shims over a socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import stat
import uuid
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from ddtree_console.demo import guard, unitload
from ddtree_console.demo.journal_store import Journal
from ddtree_console.demo.processes import Tracker
from ddtree_console.demo.service import Service
from ddtree_console.demo.shims import TOOLS
from ddtree_console.demo.unit import Unit

_SCAN = 0.5
_AVAILABLE = re.compile(rb"avail mem=(\d+\.\d+) GB")
_T = TypeVar("_T")


class Supervisor:
    """One host's units. root holds etc, run, var, opt, cgroup, bin and boot_id."""

    def __init__(self, root: Path, name: str, token: str) -> None:
        self.root, self.name, self.token = root, name, token
        self.state = "off"
        self.units: dict[str, Service] = {}
        self.journal = Journal(uuid.uuid4().hex, name)
        self.tracker = Tracker(root / "cgroup", token)
        self.bin_folder = str(root / "bin")
        self._ticker: asyncio.Task[None] | None = None
        self._jobs: set[asyncio.Task[Any]] = set()
        self._stored: dict[tuple[str, str, int], dict[str, str]] = {}
        self.base_env = {
            "PATH": self.bin_folder,
            "LANG": "C.UTF-8",
            "DDTREE_SANDBOX": token,
            "HOME": str(root / "root"),
            "USER": "root",
            "LOGNAME": "root",
            "SHELL": "/bin/sh",
        }

    # --- boots

    def boot(self) -> None:
        """A fresh /run, a new boot id, then every enabled unit starts."""
        shutil.rmtree(self.root / "run", ignore_errors=True)
        for folder in ("run/systemd", "etc/systemd/system", "var", "opt", "cgroup/system.slice", "root"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        boot = uuid.uuid4()
        (self.root / "boot_id").write_text(f"{boot}\n")
        self.journal.boot = boot.hex
        self.units.clear()
        self.tracker = Tracker(self.root / "cgroup", self.token)
        self.state = "running"
        self._ticker = asyncio.create_task(self._tick(), name=f"{self.name}/tick")
        self.note(f"systemd sandbox of ddtree-console running in system mode on {self.name} (demo)")
        for name in self.enabled():
            service = self.unit(name)
            if service.text.load == "loaded":
                self.spawn_job(service)

    async def shutdown(self, timeout: float = 95.0) -> None:
        """Stops every unit as a reboot does, then whatever is left."""
        self.state = "stopping"
        self.note("Shutting down.")
        stops = [asyncio.create_task(service.stop()) for service in list(self.units.values())]
        if stops:
            await asyncio.wait(stops, timeout=timeout)
        self.power_off()

    def power_off(self) -> None:
        """At once: SIGKILL to everything, nothing is told, nothing is written."""
        self.state = "off"
        if self._ticker:
            self._ticker.cancel()
        for service in self.units.values():
            service.abandon()
        self.units.clear()
        guard.sweep(self.token)
        shutil.rmtree(self.root / "cgroup", ignore_errors=True)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_SCAN)
            running = [s.name for s in self.units.values() if s.control_group]
            if running:
                self.tracker.scan()
                for name in running:
                    self.tracker.write(name)

    # --- units

    def enabled(self) -> list[str]:
        """Units that a target's .wants folder names."""
        base = self.root / "etc/systemd/system"
        return sorted({path.name for path in base.glob("*.target.wants/*.service")})

    def unit(self, name: str) -> Service:
        """The loaded unit. One that is down and that nothing refers to is read again, as systemd has forgotten it."""
        service = self.units.get(name)
        kept = service and (service.active != "inactive" or service.transient or service.busy)
        if service and (kept or name in self.enabled()):
            return service
        service = Service(self, unitload.load(self.root, name))
        self.units[name] = service
        return service

    def reload(self) -> None:
        """daemon-reload: every unit takes what its files say now."""
        self.note("Reloading.")
        for name, service in list(self.units.items()):
            if service.active == "inactive" and not service.transient and not service.busy:
                del self.units[name]
            else:
                service.adopt(unitload.load(self.root, name))

    def spawn_job(self, service: Service) -> asyncio.Task[str]:
        """A start job that nobody waits for."""
        return self.spawn(service.ask_start())

    def spawn(self, job: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """A task of this host that outlives the call which asked for it."""
        task = asyncio.create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        return task

    def ended(self, service: Service) -> None:
        """A unit is down: a transient one is collected as its CollectMode says."""
        down = service.active == "inactive" or service.config.collect == "inactive-or-failed"
        if service.transient and down:
            with contextlib.suppress(OSError):
                Path(service.text.fragment).unlink()
            if self.units.get(service.name) is service:
                del self.units[service.name]

    def specifiers(self, name: str) -> dict[str, str]:
        """systemd's %x for a unit of this host."""
        prefix, _, rest = name.rpartition(".")[0].partition("@")
        paths = {"t": str(self.root / "run"), "S": str(self.root / "var"), "E": str(self.root / "etc")}
        return {
            **paths,
            "n": name,
            "N": name.rpartition(".")[0],
            "p": prefix,
            "i": rest,
            "I": rest,
            "H": self.name,
            "l": self.name,
            "u": "root",
            "U": "0",
            "h": str(self.root / "root"),
            "b": self.journal.boot,
            "m": self.journal.machine,
        }

    def program(self, path: str) -> str:
        """The file to execute. A bare name is looked up among the shims only; the machine's own tools for units and
        power stay out of reach by any path. OSError (ENOENT, EACCES) as execve would say."""
        name = path.rpartition("/")[2]
        shim = Path(self.bin_folder, name)
        if "/" not in path or (name in TOOLS and not path.startswith(str(self.root))):
            path = str(shim)
        if not stat.S_ISREG(Path(path).stat().st_mode) or not os.access(path, os.X_OK):
            raise PermissionError(13, "Permission denied", path)
        return path

    # --- journal

    def output(self, service: Unit, pid: int, line: bytes, line_break: str) -> None:
        """An entry from a unit's stdout or stderr; `<3>` at its start is its priority."""
        priority = 6
        if len(line) > 3 and line[:1] == b"<" and line[2:3] == b">" and line[1:2] in b"01234567":
            priority, line = int(line[1:2]), line[3:]
            if not line:
                return
        if b"avail mem=" in line and (found := _AVAILABLE.findall(line)):
            service.available = float(found[-1])
        key = (service.name, service.invocation, pid)
        fields = self._stored.get(key)
        if fields is None:
            if len(self._stored) > 256:
                self._stored.clear()
            fields = self._stored[key] = self._output_fields(service, pid)
        self.journal.append(line, priority, fields, line_break)

    def _output_fields(self, service: Unit, pid: int) -> dict[str, str]:
        comm = ""
        with contextlib.suppress(OSError):
            comm = Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
        return {
            "_TRANSPORT": "stdout",
            "_STREAM_ID": uuid.uuid4().hex,
            "SYSLOG_FACILITY": "3",
            "SYSLOG_IDENTIFIER": service.config.identifier or service.names.get(pid) or service.name,
            "_COMM": comm,
            "_PID": str(pid),
            "_UID": str(os.getuid()),
            "_GID": str(os.getgid()),
            "_SYSTEMD_CGROUP": f"/system.slice/{service.name}",
            "_SYSTEMD_UNIT": service.name,
            "_SYSTEMD_SLICE": "system.slice",
            "_SYSTEMD_INVOCATION_ID": service.invocation,
        }

    def log(self, service: Unit, text: str, priority: int = 6) -> None:
        """One of systemd's own lines about a unit."""
        fields = {**_OWN, "UNIT": service.name}
        if service.invocation:
            fields["INVOCATION_ID"] = service.invocation
        self.journal.append(text.encode("utf-8", "surrogateescape"), priority, fields)

    def note(self, text: str) -> None:
        """One of systemd's own lines about the host."""
        self.journal.append(text.encode(), 6, _OWN)

    def drain(self) -> None:
        """What services have written is in the journal afterwards (`journalctl --sync`)."""
        for service in self.units.values():
            service.drain()

    def running(self) -> Iterable[Service]:
        """Units with a main process."""
        return [s for s in self.units.values() if s.main_pid]


_OWN = {
    "_TRANSPORT": "journal",
    "_PID": "1",
    "_UID": "0",
    "_GID": "0",
    "_COMM": "systemd",
    "_SYSTEMD_UNIT": "init.scope",
    "_SYSTEMD_CGROUP": "/init.scope",
    "SYSLOG_IDENTIFIER": "systemd",
    "SYSLOG_FACILITY": "3",
}
