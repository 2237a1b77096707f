"""How the host code is started on one host; the transport package brings it, tests bring a double."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ddtree_console.domain.spec import Host
from ddtree_console.transport.base import Transport


class Launcher(Protocol):
    """Command lines for one connection. privileged: as root; why: the reason where it is not, '' otherwise."""

    @property
    def privileged(self) -> bool:
        """Whether commands run as root."""
        ...

    @property
    def why(self) -> str:
        """Why they do not, '' where they do."""
        ...

    def argv(self, command: str) -> list[str]:
        """The command line of a host command, fixed words only."""
        ...

    async def repair(self, transport: Transport, status: int, stderr: bytes) -> None:
        """After a command that ended before its first line: installs what is missing, drops a refused sudo.

        Returns when trying again makes sense; TransportError names what a person must do otherwise.
        """
        ...


LauncherFactory = Callable[[Host], Launcher]
