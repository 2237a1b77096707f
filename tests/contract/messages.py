"""Reads a host command's JSON lines until the one that a test waits for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from ddtree_console.transport.base import Process

Message = dict[str, Any]


class Messages:
    """All messages of one process, and the newest of each kind."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._lines = process.lines()
        self.all: list[Message] = []

    async def until(self, wanted: Callable[[Message], Any], timeout: float = 15.0) -> Message:
        """The next message of which `wanted` holds; AssertionError has all that came instead."""
        try:
            async with asyncio.timeout(timeout):
                async for line in self._lines:
                    message: Message = json.loads(line)
                    self.all.append(message)
                    if wanted(message):
                        return message
        except TimeoutError:
            pass
        tail = "\n".join(json.dumps(message)[:300] for message in self.all[-30:])
        raise AssertionError(f"not within {timeout} s, or it ended: {await self._end()}\n{tail}")

    async def _end(self) -> str:
        await self.process.close()
        status, err = await self.process.wait()
        return f"status {status}: {err.decode('utf-8', 'replace')[-2000:]}"


def kind(name: str) -> Callable[[Message], bool]:
    """Holds of the watcher's messages of that kind."""
    return lambda message: message.get("kind") == name
