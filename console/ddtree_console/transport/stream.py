"""A long-lived command over three byte streams; SSH and local processes share it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from ddtree_console.transport.base import Completed, TransportError
from ddtree_console.transport.words import Lines

CHUNK = 256 * 1024
STDERR_TAIL = 64 * 1024
# Our host commands end when their stdin does; one that does not within this time loses its channel.
GRACE = 1.0


class Reader(Protocol):
    """The part of StreamReader that SSHReader shares."""

    async def read(self, n: int = -1) -> bytes:
        """Up to n bytes; b'' at the end."""
        ...


class Writer(Protocol):
    """The part of StreamWriter that SSHWriter shares."""

    def write(self, data: bytes) -> None:
        """Queues bytes."""
        ...

    async def drain(self) -> None:
        """Waits until there is room."""
        ...

    def write_eof(self) -> None:
        """Closes this direction."""
        ...


@dataclass(frozen=True)
class Streams:
    """One process: its streams, how it ends, and what to do where it does not."""

    stdin: Writer
    stdout: Reader
    stderr: Reader
    wait: Callable[[], Awaitable[int | None]]
    """the exit status; None when the connection went first."""
    abandon: Callable[[], None]
    """closes the channel or kills the process."""


class StreamProcess:
    """base.Process over such streams. broken: what reads and writes raise when the connection is gone."""

    def __init__(self, host: str, streams: Streams, broken: tuple[type[BaseException], ...]) -> None:
        self._host, self._streams, self._broken = host, streams, broken
        self._tail = b""
        # Unread stderr would stop the whole channel's window.
        self._stderr = asyncio.ensure_future(self._read_stderr())

    async def _read_stderr(self) -> None:
        with contextlib.suppress(*self._broken):
            while data := await self._streams.stderr.read(CHUNK):
                self._tail = (self._tail + data)[-STDERR_TAIL:]

    async def lines(self) -> AsyncIterator[bytes]:
        """stdout, line by line, until it ends or the connection is lost."""
        splitter = Lines()
        with contextlib.suppress(*self._broken):
            while data := await self._streams.stdout.read(CHUNK):
                for line in splitter.feed(data):
                    yield line
        for line in splitter.end():
            yield line

    async def send(self, line: bytes) -> None:
        """One line to stdin; TransportError(lost) when the process is gone."""
        try:
            self._streams.stdin.write(line + b"\n")
            await self._streams.stdin.drain()
        except self._broken as error:
            cause = str(error) or "the command ended"
            raise TransportError("lost", self._host, "send", cause, "it is started again on reconnect") from error

    async def end(self) -> None:
        """Closes stdin only; never raises."""
        with contextlib.suppress(*self._broken):
            self._streams.stdin.write_eof()

    async def wait(self) -> tuple[int | None, bytes]:
        """(exit status or None for a lost connection, the last 64 kB of stderr)."""
        try:
            status = await self._streams.wait()
        except self._broken:
            status = None
        # A grandchild may hold stderr open after the process itself ended.
        await asyncio.wait([self._stderr], timeout=GRACE)
        return status, self._tail

    async def close(self) -> None:
        """Closes stdin, waits a moment, then takes the channel away; never raises."""
        await self.end()
        with contextlib.suppress(*self._broken, TimeoutError, RuntimeError):
            async with asyncio.timeout(GRACE):
                while await self._streams.stdout.read(CHUNK):
                    pass
                await self._streams.wait()
        self._streams.abandon()
        self._stderr.cancel()
        await asyncio.gather(self._stderr, return_exceptions=True)


async def finish(streams: Streams, stdin: bytes, broken: tuple[type[BaseException], ...]) -> tuple[bytes, bytes]:
    """Feeds stdin, closes it, and reads both outputs to their ends."""

    async def feed() -> None:
        with contextlib.suppress(*broken):
            if stdin:
                streams.stdin.write(stdin)
                await streams.stdin.drain()
            streams.stdin.write_eof()

    async def drain(reader: Reader) -> bytes:
        parts: list[bytes] = []
        with contextlib.suppress(*broken):
            while data := await reader.read(CHUNK):
                parts.append(data)
        return b"".join(parts)

    _, out, err = await asyncio.gather(feed(), drain(streams.stdout), drain(streams.stderr))
    return out, err


async def completed(
    host: str, action: str, streams: Streams, stdin: bytes, timeout: float, broken: tuple[type[BaseException], ...]
) -> Completed:
    """A short command fed and read to its end; TransportError(timeout) when it takes longer than `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout):
            out, err = await finish(streams, stdin, broken)
            return Completed(await streams.wait(), out, err)
    except TimeoutError as error:
        cause = f"no end within {timeout:g} s"
        raise TransportError("timeout", host, action, cause, "look at the host's load") from error
    finally:
        streams.abandon()
