"""The supervisor's end of the shims: one connection a call, answered in frames until the exit status."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

Tool = Callable[["Call"], Awaitable[int]]


class Call:
    """One run of a shim: its arguments, and where its answer goes."""

    def __init__(self, name: str, cwd: str, args: list[str], writer: asyncio.StreamWriter) -> None:
        self.name, self.cwd, self.args = name, cwd, args
        self._writer = writer

    def _frame(self, kind: bytes, data: bytes) -> None:
        for at in range(0, len(data), 1 << 20):
            part = data[at : at + (1 << 20)]
            self._writer.write(kind + len(part).to_bytes(4, "big") + part)

    def out(self, text: str) -> None:
        """One line of stdout."""
        self.raw(text.encode("utf-8", "surrogateescape") + b"\n")

    def raw(self, data: bytes) -> None:
        """Bytes of stdout."""
        self._frame(b"o", data)

    def err(self, text: str) -> None:
        """One line of stderr."""
        self._frame(b"e", text.encode("utf-8", "surrogateescape") + b"\n")

    async def drain(self) -> None:
        """Waits while the shim's reader is behind; ConnectionError when it is gone."""
        await self._writer.drain()

    def end(self, status: int) -> None:
        """The exit status, last."""
        self._frame(b"x", bytes([status & 0xFF]))


class Control:
    """The socket ROOT/control."""

    def __init__(self, root: Path, tools: dict[str, Tool]) -> None:
        self._root, self._tools = root, tools
        self._server: asyncio.Server | None = None
        self._calls: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Starts to listen. OSError when the root cannot hold a socket."""
        self._root.joinpath("control").unlink(missing_ok=True)
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Through the descriptor, because a socket's own path may hold 107 bytes only.
            self._server = await asyncio.start_unix_server(self._accept, f"/proc/self/fd/{folder}/control")
        finally:
            os.close(folder)
        self._root.joinpath("control").chmod(0o600)

    async def close(self) -> None:
        """Ends every call; their shims say that the sandbox ended."""
        if self._server:
            self._server.close()
        for task in list(self._calls):
            task.cancel()
        if self._calls:
            await asyncio.wait(self._calls)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        # A cancelled handler would make asyncio's streams log a traceback; our own close() is the only one to cancel.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._answer(reader, writer)
        self._calls.discard(task)
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name, cwd, *args = await _request(reader)
        call = Call(name, cwd, args, writer)
        work = asyncio.ensure_future(self._tools[name](call))
        gone = asyncio.ensure_future(reader.read())
        waited: set[asyncio.Future[Any]] = {gone, work}
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                call.end(work.result())
                await call.drain()
        finally:
            gone.cancel()
            work.cancel()


async def _request(reader: asyncio.StreamReader) -> list[str]:
    parts: list[str] = []
    while True:
        head = await reader.readexactly(1)
        if head == b".":
            return parts
        head += await reader.readuntil(b":")
        body = await reader.readexactly(int(head[:-1]) + 1)
        parts.append(body[:-1].decode("utf-8", "surrogateescape"))
