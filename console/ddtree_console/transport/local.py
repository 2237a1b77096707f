"""This machine itself, with the same contract: subprocesses and plain sockets."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from asyncio.subprocess import Process as Child
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddtree_console.domain.spec import Host
from ddtree_console.transport.address import reachable
from ddtree_console.transport.base import Completed, Process, TransportError
from ddtree_console.transport.stream import CHUNK, StreamProcess, Streams, completed
from ddtree_console.transport.words import command_line

SHORT_COMMANDS = 2
BROKEN = (OSError, EOFError)


async def spawn(*argv: str, **options: Any) -> tuple[Child, asyncio.SubprocessTransport]:
    """A child and its transport: close() kills it and lets go of its pipes, also where a grandchild keeps them."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: SubprocessStreamProtocol(limit=CHUNK, loop=loop), *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, **options
    )
    return Child(transport, protocol, loop), transport


class LocalTransport:
    """base.Transport without a network."""

    def __init__(self, host: Host) -> None:
        self.name = host.name
        self.closed = asyncio.Event()
        self._short = asyncio.Semaphore(SHORT_COMMANDS)
        self._running: dict[Child, asyncio.SubprocessTransport] = {}

    async def connect(self) -> None:
        """Nothing to do."""

    async def _spawn(self, argv: Sequence[str]) -> Streams:
        command_line(argv)
        try:
            # A session of its own: ctrl+c in the console's terminal is not meant for it, and nothing can prompt there.
            process, transport = await spawn(*argv, start_new_session=True, cwd=Path.home())
        except OSError as error:
            cause = f"{argv[0]}: {error.strerror}"
            raise TransportError("config", self.name, "start a command", cause, "install it") from error
        assert process.stdin and process.stdout and process.stderr
        self._running[process] = transport

        async def wait() -> int | None:
            return await process.wait()

        return Streams(process.stdin, process.stdout, process.stderr, wait, lambda: self._abandon(process))

    def _abandon(self, process: Child) -> None:
        transport = self._running.pop(process, None)
        if transport is not None:
            transport.close()

    async def run(self, argv: Sequence[str], stdin: bytes = b"", timeout: float = 30.0) -> Completed:
        """A short command; TransportError(timeout) when it takes longer."""
        async with self._short:
            streams = await self._spawn(argv)  # first: it refuses what may not stand on a command line
            return await completed(self.name, argv[-1], streams, stdin, timeout, BROKEN)

    async def start(self, argv: Sequence[str]) -> Process:
        """A long-lived command."""
        return StreamProcess(self.name, await self._spawn(argv), BROKEN)

    async def open_tcp(self, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A stream to address:port."""
        where = reachable(address)
        try:
            return await asyncio.open_connection(where, port)
        except OSError as error:
            cause = "connection refused" if isinstance(error, ConnectionRefusedError) else error.strerror or str(error)
            raise TransportError("refused", self.name, f"connect to {where}:{port}", cause, "is it serving?") from error

    async def close(self) -> None:
        """Ends what still runs."""
        self.closed.set()
        for process in tuple(self._running):
            self._abandon(process)
            await process.wait()
