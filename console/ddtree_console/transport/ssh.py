"""One SSH connection to a host, by asyncssh. Import it after the first frame: asyncssh takes a while to load."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

import asyncssh

from ddtree_console.domain.spec import Host
from ddtree_console.transport import ssh_errors
from ddtree_console.transport.address import reachable
from ddtree_console.transport.base import Completed, Process
from ddtree_console.transport.ssh_errors import BROKEN, FAILED
from ddtree_console.transport.ssh_hostkey import HostKeys, Where, files
from ddtree_console.transport.stream import StreamProcess, Streams, completed
from ddtree_console.transport.words import command_line

LIMIT = 5.0
"""Seconds for the TCP connection, and again for key exchange and login."""
KEEPALIVE, KEEPALIVE_COUNT = 5.0, 3
SHORT_COMMANDS = 2
MOST_JUMPS = 5
OPEN_PAUSES = (0.05, 0.1, 0.2, 0.4)
"""At MaxSessions, sshd refuses a session that is opened in the moment in which another one ends: seconds to wait."""

# Without a handler Python's last resort would write asyncssh's warnings across the console's screen.
logging.getLogger("asyncssh").addHandler(logging.NullHandler())


class _Client(asyncssh.SSHClient):
    """Notes what happens to the connection; accepts and answers nothing."""

    def __init__(self, keys: HostKeys, lost: Callable[[], None], made: asyncio.Event, timer: asyncio.Timeout) -> None:
        self._keys, self._lost, self._made, self._timer = keys, lost, made, timer

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self._made.set()
        self._timer.reschedule(asyncio.get_running_loop().time() + LIMIT)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self._keys.offered = key
        return False


class SshTransport:
    """base.Transport over SSH. jump: the fleet's host to go through, instead of one in ~/.ssh/config.

    keepalive: seconds between two of them; a connection that answered none of the last three is lost.
    """

    def __init__(self, host: Host, jump: Host | None = None, keepalive: float = KEEPALIVE) -> None:
        self.name = host.name
        self.closed = asyncio.Event()
        self._host, self._jump, self._keepalive = host, jump, keepalive
        self._connection: asyncssh.SSHClientConnection | None = None
        self._jumps: list[asyncssh.SSHClientConnection] = []
        self._short = asyncio.Semaphore(SHORT_COMMANDS)

    async def connect(self) -> None:
        """Opens it, jumps first; TransportError otherwise."""
        try:
            hops = [*await self._way_to(self._jump), self._jump] if self._jump else await self._way_to(self._host)
            way: list[str] = []
            for hop in hops:
                self._jumps.append(await self._open(hop, self._cut, ",".join(way)))
                port = "" if hop.port == 22 else f":{hop.port}"
                way.append((f"{hop.user}@" if hop.user else "") + hop.address + port)
            self._connection = await self._open(self._host, self.closed.set, ",".join(way))
        except BaseException:
            await self.close()
            raise

    async def _way_to(self, host: Host, depth: int = 0) -> list[Host]:
        """Hosts of ProxyJump in ~/.ssh/config, opened by us so that they get the same strictness and error texts."""
        try:
            options = await self._options(host, tunnel=())
        except FAILED as error:
            where = Where(host.address, host.port, host.user or "")
            raise ssh_errors.connecting(error, self.name, where, HostKeys(()), False, LIMIT) from error
        words = options.tunnel if isinstance(options.tunnel, str) else ""
        hops: list[Host] = []
        for word in words.split(","):
            user, _, address = word.strip().rpartition("@")
            bare, _, port = address.rpartition(":")
            if not (bare and port.isdigit()):
                bare, port = address, "22"
            if bare and bare.lower() != "none":
                hops.append(Host(word, bare.strip("[]"), int(port), user or None, known_hosts=host.known_hosts))
        if hops and depth < MOST_JUMPS:
            # Only the first may have a way of its own; the others are reached through the one before.
            return [*await self._way_to(hops[0], depth + 1), *hops]
        return hops

    async def _options(self, host: Host, **more: Any) -> asyncssh.SSHClientConnectionOptions:
        """asyncssh's options. Port 22 is left open, so that ~/.ssh/config may name another."""
        options: asyncssh.SSHClientConnectionOptions = await asyncssh.SSHClientConnectionOptions.construct(
            config=(),
            host=host.address,
            port=() if host.port == 22 else host.port,
            username=host.user or (),
            client_keys=[host.identity] if host.identity else (),
            # A locked key is only skipped: the agent may hold it. If not, `denied` names it.
            ignore_encrypted=True,
            keepalive_interval=self._keepalive,
            keepalive_count_max=KEEPALIVE_COUNT,
            login_timeout=0,
            connect_timeout=None,
            password_auth=False,
            kbdint_auth=False,
            **more,
        )
        return options

    def _cut(self) -> None:
        """A jump went, and with it all that goes through it; asyncssh would notice by its keepalive only."""
        self.closed.set()
        if self._connection is not None:
            self._connection.abort()

    async def _open(self, host: Host, lost: Callable[[], None], way: str) -> asyncssh.SSHClientConnection:
        keys, made = HostKeys(files(host.known_hosts, ())), asyncio.Event()
        where = Where(host.address, host.port, host.user or "", way)
        tunnel = self._jumps[-1] if self._jumps else None
        options: asyncssh.SSHClientConnectionOptions | None = None
        try:
            async with asyncio.timeout(LIMIT) as timer:
                options = await self._options(
                    host,
                    tunnel=tunnel,
                    known_hosts=keys,
                    client_factory=lambda: _Client(keys, lost, made, timer),
                )
                config = options.config
                keys.paths = files(host.known_hosts, cast(Sequence[str], config.get("UserKnownHostsFile", ())))
                where = Where(options.host or host.address, options.port, options.username, way)
                # These three would be taken from their defaults again, and a tunnel from ~/.ssh/config.
                return await asyncssh.connect(options.host, options.port, tunnel=tunnel, options=options)
        except asyncssh.PermissionDenied as error:
            configured = options.config.get("IdentityFile", ()) if options else ()
            candidates = ssh_errors.key_files(host.identity, cast(Sequence[str], configured))
            action = f"log in to {where.label}"
            agent = await self._agent_keys(options)
            raise ssh_errors.denied(host.name, action, where, candidates, agent) from error
        except FAILED as error:
            raise ssh_errors.connecting(error, host.name, where, keys, made.is_set(), LIMIT) from error

    @staticmethod
    async def _agent_keys(options: asyncssh.SSHClientConnectionOptions | None) -> list[bytes] | None:
        """Public parts of the agent's keys; None without an agent."""
        path = options.agent_path if options else None
        if not path:
            return None
        try:
            async with asyncio.timeout(LIMIT), asyncssh.connect_agent(path) as agent:
                return [key.public_data for key in await agent.get_keys()]
        except FAILED:
            return None

    def _up(self, action: str) -> asyncssh.SSHClientConnection:
        if self._connection is None or self.closed.is_set():
            raise ssh_errors.lost(self.name, action)
        return self._connection

    async def _spawn(self, argv: Sequence[str]) -> Streams:
        line = command_line(argv)
        connection = self._up(argv[-1])
        for pause in (*OPEN_PAUSES, None):
            try:
                process = await connection.create_process(line, encoding=None)
                break
            except BROKEN as error:
                if pause is None or not isinstance(error, asyncssh.ChannelOpenError) or self.closed.is_set():
                    raise ssh_errors.session(error, self.name, argv[-1]) from error
            await asyncio.sleep(pause)

        async def wait() -> int | None:
            await process.wait_closed()
            return process.exit_status

        return Streams(process.stdin, process.stdout, process.stderr, wait, process.close)

    async def run(self, argv: Sequence[str], stdin: bytes = b"", timeout: float = 30.0) -> Completed:
        """A short command; TransportError(timeout) when it takes longer. Two at most at once."""
        async with self._short:
            streams = await self._spawn(argv)  # first: it refuses what may not stand on a command line
            return await completed(self.name, argv[-1], streams, stdin, timeout, BROKEN)

    async def start(self, argv: Sequence[str]) -> Process:
        """A long-lived command."""
        return StreamProcess(self.name, await self._spawn(argv), BROKEN)

    async def open_tcp(self, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A direct-tcpip channel; nothing listens on this machine."""
        where = reachable(address)
        connection = self._up(f"connect to {where}:{port}")
        try:
            reader, writer = await connection.open_connection(where, port, encoding=None)
        except BROKEN as error:
            raise ssh_errors.forward(error, self.name, where, port) from error
        # SSHReader and SSHWriter have the methods that stream users call: read, write, drain, write_eof, close.
        return cast(asyncio.StreamReader, reader), cast(asyncio.StreamWriter, writer)

    async def close(self) -> None:
        """Ends the connection, then its jumps; never raises."""
        connections = [c for c in (self._connection, *reversed(self._jumps)) if c is not None]
        self._jumps.clear()
        for connection in connections:
            connection.close()
            with contextlib.suppress(*BROKEN, TimeoutError):
                async with asyncio.timeout(1.0):
                    await connection.wait_closed()
                continue
            connection.abort()
        self.closed.set()
