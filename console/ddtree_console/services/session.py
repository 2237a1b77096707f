"""What flows over one connection while it lasts: the watcher's messages and the journal."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

from ddtree_console.services.launcher import Launcher
from ddtree_console.transport.base import Process, Transport, TransportError

SILENCE = 20.0
"""Seconds without a word from the watcher, which beats every 2: ten times that is a frozen one."""


class Sink(Protocol):
    """Who is told of what arrives; called from the event loop, must not block."""

    def watcher_config(self) -> Mapping[str, Any]:
        """First line of the watcher's stdin."""
        ...

    def journal_request(self, again: bool) -> Mapping[str, Any]:
        """First line of the follower's stdin; again: it followed before and resumes at its cursor."""
        ...

    def message(self, raw: Mapping[str, Any]) -> None:
        """A watcher message."""
        ...

    def journal(self, line: bytes) -> None:
        """A line of the journal follower."""
        ...


def parse_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object in a line, or None."""
    try:
        raw = json.loads(line)
    except ValueError:
        return None
    return raw if isinstance(raw, dict) else None


class Session:
    """One connection's streams. pause(failures): waits before the journal follower is started again."""

    def __init__(
        self, name: str, transport: Transport, launcher: Launcher, sink: Sink, pause: Callable[[int], Awaitable[None]]
    ) -> None:
        self._name, self._transport, self._launcher, self._sink, self._pause = name, transport, launcher, sink, pause
        self.watcher: Process | None = None
        self._lines: AsyncIterator[bytes] | None = None

    def _lost(self, cause: str) -> TransportError:
        return TransportError("lost", self._name, "follow", cause, "it reconnects by itself")

    async def open(self) -> Mapping[str, Any]:
        """Starts the watcher; its first message. Installs the host code or drops sudo where that is what it lacks."""
        while True:
            process = await self._transport.start(self._launcher.argv("watch"))
            with contextlib.suppress(TransportError):
                await process.send(json.dumps(self._sink.watcher_config()).encode())
            lines = process.lines()
            async for line in lines:
                if (message := parse_object(line)) is not None:
                    self.watcher, self._lines = process, lines
                    return message
            status, stderr = await process.wait()
            await process.close()
            if status is None:
                raise self._lost("connection lost")
            await self._launcher.repair(self._transport, status, stderr)

    async def follow(self, again: bool) -> TransportError:
        """Both streams until the first ends; returns why."""
        tasks = [
            asyncio.ensure_future(self._watch()),
            asyncio.ensure_future(self._journal(again)),
            asyncio.ensure_future(self._transport.closed.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            ended = next((t.result() for t in tasks[:2] if t.done()), None)
            return ended if isinstance(ended, TransportError) else self._lost("connection lost")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self.watcher is not None:
                await self.watcher.close()

    async def _watch(self) -> TransportError:
        process, lines = self.watcher, self._lines
        assert process is not None and lines is not None
        while True:
            try:
                # Not wait_for: up to Python 3.11 it loses a cancellation that comes together with a line.
                async with asyncio.timeout(SILENCE):
                    line = await anext(lines)
            except StopAsyncIteration:
                status, stderr = await process.wait()
                if status is None:
                    return self._lost("connection lost")
                tail = stderr.decode("utf-8", "replace").strip().splitlines()
                return self._lost(f"the watcher ended with {status}: {tail[-1] if tail else 'no reason given'}")
            except TimeoutError:
                return self._lost(f"the watcher was silent for {SILENCE:.0f} s")
            if (message := parse_object(line)) is not None:
                self._sink.message(message)

    async def _journal(self, again: bool) -> TransportError:
        """The journal, restarted at its cursor when the follower ends (journalctl aborts when files are vacuumed)."""
        failures = 0
        while True:
            heard = False
            try:
                process = await self._transport.start(self._launcher.argv("journal"))
                try:
                    await process.send(json.dumps(self._sink.journal_request(again)).encode())
                    async for line in process.lines():
                        heard = True
                        self._sink.journal(line)
                    status, _ = await process.wait()
                finally:
                    await process.close()
            except TransportError as error:
                return error
            if status is None or self._transport.closed.is_set():
                return self._lost("connection lost")
            failures, again = (1 if heard else failures + 1), True
            await self._pause(failures)
