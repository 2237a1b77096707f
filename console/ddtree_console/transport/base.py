"""What services need of a connection to one host; ssh.py and local.py bring it. Text from a host stays bytes here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol


class TransportError(Exception):
    """A connection failed or was lost.

    kind: unknown-key | changed-key | locked-key | auth | refused | timeout | resolve | config | lost | no-forwarding.
    The first three and auth, config are never retried by themselves. next_step: the exact command for another shell,
    or what to do.
    """

    def __init__(self, kind: str, host: str, action: str, cause: str, next_step: str) -> None:
        super().__init__(f"{host}: {action}: {cause}; {next_step}")
        self.kind, self.host, self.action, self.cause, self.next_step = kind, host, action, cause, next_step


@dataclass(frozen=True)
class Completed:
    """A finished command. status None: the connection was lost before it ended."""

    status: int | None
    stdout: bytes
    stderr: bytes


class Process(Protocol):
    """A long-lived command. Lines may be megabytes; each comes whole, without its newline."""

    def lines(self) -> AsyncIterator[bytes]:
        """stdout, line by line, until it ends or the connection is lost."""
        ...

    async def send(self, line: bytes) -> None:
        """One line to stdin (newline added); TransportError(lost) when the process is gone."""
        ...

    async def end(self) -> None:
        """Closes stdin only: a command that reads to the end of its input may answer; never raises."""
        ...

    async def close(self) -> None:
        """Closes stdin, which ends our host commands, then the channel; never raises."""
        ...

    async def wait(self) -> tuple[int | None, bytes]:
        """(exit status or None for a lost connection, the last 64 kB of stderr)."""
        ...


class Transport(Protocol):
    """One connection to one host."""

    name: str
    closed: asyncio.Event
    """set when the connection is gone for whatever reason."""

    async def connect(self) -> None:
        """Opens it; TransportError otherwise. Never prompts, never accepts a key by itself."""
        ...

    async def run(self, argv: Sequence[str], stdin: bytes = b"", timeout: float = 30.0) -> Completed:
        """A short command; two at most at once. ValueError for an argument outside the fixed alphabet."""
        ...

    async def start(self, argv: Sequence[str]) -> Process:
        """A long-lived command."""
        ...

    async def open_tcp(self, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A stream to address:port as seen from the host (direct-tcpip); TransportError(no-forwarding) if forbidden."""
        ...

    async def close(self) -> None:
        """Ends everything; never raises."""
        ...
