"""The sandbox host's sshd: loopback only, one key, real child processes, no shell."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import shlex
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import asyncssh

_WORDS = re.compile(r"[A-Za-z0-9_./=:@ -]+\Z")


class Running:
    """A remote command."""

    def __init__(self, process: asyncio.subprocess.Process, transport: asyncio.SubprocessTransport) -> None:
        self.process, self._transport = process, transport

    def hang_up(self) -> None:
        """Our ends of its pipes go: it reads an end of file, and its next write fails."""
        for number in (0, 1, 2):
            pipe = self._transport.get_pipe_transport(number)
            if pipe:
                pipe.close()


class _Server(asyncssh.SSHServer):
    """Public keys of the demo only; direct-tcpip to loopback only."""

    def __init__(self, owner: SshHost) -> None:
        self._owner = owner

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._owner.connections.add(conn)
        self._conn = conn

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.connections.discard(self._conn)

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return key.public_data == self._owner.client_key.public_data

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        if dest_host == "localhost":
            return True
        try:
            return ipaddress.ip_address(dest_host).is_loopback
        except ValueError:
            return False


class SshHost:
    """Listens for one sandbox host. env is that of every command; its PATH holds the shims only."""

    def __init__(self, root: Path, env: Mapping[str, str], client_key: asyncssh.SSHKey) -> None:
        self._root, self._env, self.client_key = root, dict(env), client_key
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.connections: set[asyncssh.SSHServerConnection] = set()
        self.port = 0
        self._listener: asyncssh.SSHAcceptor | None = None
        self.running: list[Running] = []

    @property
    def listening(self) -> bool:
        """Whether new connections are taken."""
        return self._listener is not None

    async def open(self) -> None:
        """Listens on the port that it had before, at first on a free one. OSError when that is taken."""
        self._listener = await asyncssh.listen(
            "127.0.0.1",
            self.port,
            server_factory=lambda: _Server(self),
            server_host_keys=[self.host_key],
            process_factory=self._serve,
            encoding=None,
            password_auth=False,
            kbdint_auth=False,
            reuse_address=True,
        )
        self.port = self._listener.get_port()

    async def close(self, *, hard: bool = False) -> None:
        """No listener and no connection any more. hard: cut, without a word, as a power loss does."""
        if self._listener:
            self._listener.close()
            self._listener = None
        for connection in list(self.connections):
            if hard:
                connection.abort()
            else:
                connection.close()
        for running in list(self.running):
            with contextlib.suppress(ProcessLookupError):
                running.process.kill()

    async def _serve(self, session: asyncssh.SSHServerProcess[bytes]) -> None:
        try:
            argv = self.argv(session.command)
        except ValueError as error:
            session.stderr.write(f"sandbox: {error}\n".encode())
            session.exit(126)
            return
        try:
            running = await self.start(argv)
        except OSError as error:
            session.stderr.write(f"sandbox: {argv[0]}: {error.strerror}\n".encode())
            session.exit(127)
            return
        self.running.append(running)
        try:
            await self._carry(session, running)
        finally:
            self.running.remove(running)

    async def _carry(self, session: asyncssh.SSHServerProcess[bytes], running: Running) -> None:
        """Bytes both ways until the command ends. Like sshd, a lost connection closes its pipes and kills nothing."""
        process = running.process
        assert process.stdin and process.stdout and process.stderr
        feed = asyncio.create_task(_pump_in(session.stdin, process.stdin))
        out = asyncio.gather(_pump(process.stdout, session.stdout), _pump(process.stderr, session.stderr))
        lost = asyncio.ensure_future(session.channel.wait_closed())
        waited: set[asyncio.Future[Any]] = {out, lost}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not out.done() or out.exception():
            out.cancel()
            running.hang_up()
            # Both ends are gone: what the pumps say about it interests nobody, but must be taken.
            await asyncio.gather(out, return_exceptions=True)
        status = await process.wait()
        feed.cancel()
        lost.cancel()
        with contextlib.suppress(OSError, asyncssh.Error):
            if status < 0:
                session.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
            else:
                session.exit(status)

    def argv(self, command: str | None) -> list[str]:
        """The words of a remote command. ValueError for a shell, or for anything outside the fixed alphabet."""
        if not command:
            raise ValueError("no shell here: give a command")
        if not _WORDS.match(command):
            raise ValueError("a remote command holds only words of A-Z a-z 0-9 _ . / = : @ -")
        return shlex.split(command)

    async def start(self, argv: Sequence[str]) -> Running:
        """A command as the host runs it, looked up among the shims only. OSError when it cannot be executed."""
        loop = asyncio.get_running_loop()
        program = argv[0] if "/" in argv[0] else str(self._root / "bin" / argv[0])
        transport, protocol = await loop.subprocess_exec(
            lambda: asyncio.subprocess.SubprocessStreamProtocol(1 << 16, loop),
            program,
            *argv[1:],
            cwd=self._root / "root",
            env=self._env,
            start_new_session=True,
        )
        return Running(asyncio.subprocess.Process(transport, protocol, loop), transport)


async def _pump(source: asyncio.StreamReader, target: asyncssh.SSHWriter[bytes]) -> None:
    while data := await source.read(65536):
        target.write(data)
        await target.drain()


async def _pump_in(source: asyncssh.SSHReader[bytes], target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncssh.Error):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()


def known_hosts_line(port: int, key: asyncssh.SSHKey) -> str:
    """The line of a known_hosts file for that server."""
    return f"[127.0.0.1]:{port} {key.export_public_key().decode().strip()}\n"


def write_private(path: Path, data: bytes) -> None:
    """A file that only its owner reads, from its first byte on."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
