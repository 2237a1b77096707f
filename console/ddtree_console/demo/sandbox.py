"""Two (or more) sandbox hosts in this process, gone without a trace when it ends, however it ends."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import asyncssh

from ddtree_console.demo import guard, shims, ssh_server
from ddtree_console.demo.host import SandboxHost
from ddtree_console.domain.spec import Fleet, Host

HOSTS = ("ct129", "ct200")
GPUS = {"ct129": 2, "ct200": 8}


class Sandbox:
    """`async with Sandbox(root, speed) as box:` box.fleet is what a console loads; box.host(name) the back door.

    root is made when it is missing; what lies in it stays afterwards unless `remove`. speed: how many times faster than
    recorded. prepared False: bare hosts without services. model: the wrapper server itself serves it (tiny, or a
    folder), instead of replayed recordings; it needs the packages of wrapper_fleet.NEEDED.
    """

    def __init__(
        self,
        root: Path,
        speed: float = 20.0,
        hosts: Sequence[str] = HOSTS,
        *,
        prepared: bool = True,
        remove: bool = False,
        model: str = "",
    ) -> None:
        self.root, self.speed, self.model = root, speed, model
        self._names, self._prepared, self._remove = tuple(hosts), prepared, remove
        self._hosts: dict[str, SandboxHost] = {}
        self._guard: subprocess.Popen[bytes] | None = None
        self._token = uuid.uuid4().hex
        self.fleet = Fleet(path="", demo=True)

    def host(self, name: str) -> SandboxHost:
        """The back door of a host; KeyError names it."""
        return self._hosts[name]

    async def __aenter__(self) -> Sandbox:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.root / "sandbox.json").write_text("{}\n")
        self._watch()
        try:
            await self._open()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    def _watch(self) -> None:
        """The guard kills what is left when we are gone, SIGKILL included."""
        argv = [shims.interpreter(), "-IS", str(Path(guard.__file__)), self._token]
        if self._remove:
            argv.append(str(self.root))
        self._guard = subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True, cwd="/")

    async def _open(self) -> None:
        key = asyncssh.generate_private_key("ssh-ed25519")
        identity = self.root / "id_ed25519"
        identity.unlink(missing_ok=True)
        ssh_server.write_private(identity, key.export_private_key())
        for name in self._names:
            host = SandboxHost(name, self.root / name, GPUS.get(name, 1), key, self._token)
            self._hosts[name] = host
            host.prepare()
        if self._prepared:
            await self._boot_prepared()
        else:
            await asyncio.gather(*(host.boot() for host in self._hosts.values()))
        known = self.root / "known_hosts"
        known.write_text("".join(ssh_server.known_hosts_line(h.ssh.port, h.ssh.host_key) for h in self._hosts.values()))
        self.fleet = self._reached({name: self._entry(host, identity, known) for name, host in self._hosts.items()})

    def _reached(self, doors: dict[str, Host]) -> Fleet:
        """The fleet with every host's address, port, key and roots."""
        slots = {host.name: host.services for host in self.fleet.hosts}
        return replace(
            self.fleet, hosts=tuple(replace(door, services=slots.get(name, ())) for name, door in doors.items())
        )

    async def _boot_prepared(self) -> None:
        """The story's beginning: what serves is started at once, and goes on at the speed asked for."""
        from ddtree_console.demo import fleet, prepare, wrapper_fleet

        speed_file = self.root / "speed"
        speed_file.write_text(f"{fleet.FAST}\n")
        self.fleet = fleet.load(fleet.write(self.root / "profiles", self.model))
        hosts = list(self._hosts.values())
        for host in hosts:
            fleet.install_programs(host.root / "bin", host.name, speed_file)
            prepare.write_units(self.fleet, host)
        await asyncio.gather(*(host.boot() for host in hosts))
        code = await prepare.install(hosts)
        await asyncio.gather(*(prepare.adopt(self.fleet, host, code) for host in hosts))
        seconds = wrapper_fleet.START_SECONDS if self.model else prepare.START_SECONDS
        await asyncio.gather(*(prepare.until_serving(self.fleet, host, seconds) for host in hosts))
        speed_file.write_text(f"{self.speed}\n")

    def _entry(self, host: SandboxHost, identity: Path, known: Path) -> Host:
        return Host(
            name=host.name,
            address="127.0.0.1",
            port=host.ssh.port,
            user="root",
            identity=str(identity),
            known_hosts=str(known),
            roots=str(host.roots_file),
        )

    async def _close(self) -> None:
        for host in self._hosts.values():
            await host.end()
        if self._guard and self._guard.stdin:
            self._guard.stdin.close()
            await asyncio.to_thread(self._guard.wait)
        if self._remove:
            await asyncio.to_thread(shutil.rmtree, self.root, True)
