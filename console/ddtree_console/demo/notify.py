"""What a Type=notify service tells its manager: READY=1, as sd_notify(3) sends it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import uuid


class Readiness:
    """A datagram socket for one start of one service, in the abstract namespace: a path may be too long for one."""

    def __init__(self) -> None:
        name = f"ddtree-demo-{uuid.uuid4().hex}"
        self.address = f"@{name}"
        """NOTIFY_SOCKET of the service."""
        self.ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(f"\0{name}")
        self._loop.add_reader(self._socket, self._read)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                if b"READY=1" in self._socket.recv(4096).splitlines():
                    self.ready.set()

    def close(self) -> None:
        """Nobody is listened to any more."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
