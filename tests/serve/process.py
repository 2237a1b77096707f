"""The server as a process of its own, as an operator starts it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import httpx


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


class Process:
    """`with Process(folder, log) as server:` until the ready line; then a client at server.http."""

    def __init__(self, model: Path | str, log: Path, *flags: str, env: Mapping[str, str] | None = None) -> None:
        self.port, self.log = free_port(), log
        self._argv = [sys.executable, "-m", "ddtree_kernels.serve", "--model", str(model), "--port", str(self.port)]
        self._argv += flags
        self._env = {**os.environ, **(env or {})}
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=20, trust_env=False)

    def start(self) -> None:
        """Starts it and does not wait."""
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(self._argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=self._env)

    def __enter__(self) -> Process:
        self.start()
        self.line("fired up and ready to roll")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """At once, however far it is."""
        self.http.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    @property
    def text(self) -> str:
        """All that it wrote."""
        return self.log.read_text("utf-8", "replace")

    def line(self, pattern: str, seconds: float = 60) -> str:
        """The first line with this pattern, once it is there; AssertionError with the log when it ends or is late."""
        until = time.monotonic() + seconds
        while True:
            ended = self.process.poll() is not None
            found = re.search(f"^.*{pattern}.*$", self.text, re.MULTILINE)
            if found:
                return found[0]
            assert not ended and time.monotonic() < until, f"no {pattern!r} in:\n{self.text}"
            time.sleep(0.02)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """A signal, then its exit status."""
        self.process.send_signal(number)
        return self.process.wait(20)
