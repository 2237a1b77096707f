"""A real SSH server in this process: real keys, real shells, and faults on demand."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from ddtree_console.domain.spec import Host
from ddtree_console.transport.local import spawn


class Server(asyncssh.SSHServer):
    """Lets one key in; forwards and opens sessions as its box says."""

    def __init__(self, box: SshBox) -> None:
        self._box = box

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._box.connections.append(conn)
        self._connection = conn

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return key.public_data == self._box.client_key.public_data

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        if not self._box.forwarding:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "open failed")
        return True

    def session_requested(self) -> asyncssh.SSHServerProcess[bytes] | bool:
        if len(self._box.running) >= self._box.max_sessions:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "open failed")
        return asyncssh.SSHServerProcess(self._box.process, None, 0, False)


class SshBox:
    """The server and what a client of it needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ}
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.client_key = asyncssh.generate_private_key("ssh-ed25519")
        self.identity, self.known_hosts = folder / "id", folder / "known_hosts"
        self.client_key.write_private_key(self.identity)
        self.identity.chmod(0o600)  # ssh-add insists
        self.forwarding, self.max_sessions = True, 10
        self.connections: list[asyncssh.SSHServerConnection] = []
        self.running: set[int] = set()
        self.port = 0
        self._acceptor: asyncssh.SSHAcceptor | None = None

    async def start(self) -> None:
        """Listens, and is known."""
        self._acceptor = await asyncssh.listen(
            "127.0.0.1", self.port, server_factory=lambda: Server(self), server_host_keys=[self.host_key], encoding=None
        )
        self.port = self._acceptor.get_port()
        self.know(self.host_key)

    def know(self, key: asyncssh.SSHKey, label: str = "") -> None:
        """Makes that key the known one."""
        line = key.export_public_key().decode()
        self.known_hosts.write_text(f"{label or f'[127.0.0.1]:{self.port}'} {line}")

    async def stop(self) -> None:
        """Nothing listens, every connection is cut."""
        if self._acceptor is not None:
            self._acceptor.close()
        for connection in self.connections:
            connection.abort()
        if self._acceptor is not None:
            await self._acceptor.wait_closed()
        self._acceptor = None

    async def process(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """Runs the command in a real shell, its streams joined to the channel's."""
        number = id(process)
        self.running.add(number)
        shell, transport = await spawn("/bin/sh", "-c", str(process.command), env=self.env, cwd=self.folder)
        assert shell.stdin and shell.stdout and shell.stderr
        feed = asyncio.ensure_future(self._feed(process, shell.stdin))
        try:
            await asyncio.gather(self._copy(shell.stdout, process.stdout), self._copy(shell.stderr, process.stderr))
            status = await shell.wait()
            with contextlib.suppress(asyncssh.Error, OSError):
                process.exit(status)
        finally:
            self.running.discard(number)
            feed.cancel()
            transport.close()
            await shell.wait()

    async def _feed(self, process: asyncssh.SSHServerProcess[bytes], stdin: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncssh.Error, OSError):
            while data := await process.stdin.read(65536):
                stdin.write(data)
                await stdin.drain()
        stdin.close()

    async def _copy(self, source: asyncio.StreamReader, to: Any) -> None:
        with contextlib.suppress(asyncssh.Error, OSError):
            while data := await source.read(65536):
                to.write(data)
                await to.drain()

    def host(self, **changes: Any) -> Host:
        """The host as a fleet would have it."""
        fields = {"user": "ops", "identity": str(self.identity), "known_hosts": str(self.known_hosts), **changes}
        return Host("box", "127.0.0.1", fields.pop("port", self.port), **fields)


@pytest.fixture
async def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SshBox]:
    """A running server; the user's own ~/.ssh and agent stay out of it."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    made = SshBox(tmp_path)
    await made.start()
    yield made
    await made.stop()
