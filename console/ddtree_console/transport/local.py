"""This machine itself, with the same contract: subprocesses and plain sockets."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path

from ddtree_console.domain.spec import Host
from ddtree_console.transport.address import reachable
from ddtree_console.transport.base import Completed, Process, TransportError
from ddtree_console.transport.stream import StreamProcess, Streams, finish
from ddtree_console.transport.words import command_line

SHORT_COMMANDS = 2
BROKEN = (OSError, EOFError)


class LocalTransport:
    """base.Transport without a network."""

    def __init__(self, host: Host) -> None:
        self.name = host.name
        self.closed = asyncio.Event()
        self._short = asyncio.Semaphore(SHORT_COMMANDS)
        self._running: set[asyncio.subprocess.Process] = set()

    async def connect(self) -> None:
        """Nothing to do."""

    async def _spawn(self, argv: Sequence[str]) -> Streams:
        command_line(argv)
        try:
            # A session of its own: ctrl+c in the console's terminal is not meant for it, and nothing can prompt there.
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True, cwd=Path.home()
            )
        except OSError as error:
            cause = f"{argv[0]}: {error.strerror}"
            raise TransportError("config", self.name, "start a command", cause, "install it") from error
        assert process.stdin and process.stdout and process.stderr
        self._running.add(process)

        async def wait() -> int | None:
            status = await process.wait()
            self._running.discard(process)
            return status

        def abandon() -> None:
            self._running.discard(process)
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()

        return Streams(process.stdin, process.stdout, process.stderr, wait, abandon)

    async def run(self, argv: Sequence[str], stdin: bytes = b"", timeout: float = 30.0) -> Completed:
        """A short command; TransportError(timeout) when it takes longer."""
        async with self._short:
            streams = await self._spawn(argv)
            try:
                async with asyncio.timeout(timeout):
                    out, err = await finish(streams, stdin, BROKEN)
                    return Completed(await streams.wait(), out, err)
            except TimeoutError as error:
                cause = f"no end within {timeout:g} s"
                raise TransportError("timeout", self.name, argv[-1], cause, "look at the host's load") from error
            finally:
                streams.abandon()

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
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        self._running.clear()
