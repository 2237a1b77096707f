"""A program in a pseudo-terminal of a given size: what it writes, when, and what it costs. Linux only (/proc)."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

TICK = os.sysconf("SC_CLK_TCK")
ESCAPES = re.compile(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[=>78]")


class PtyProgram:
    """Started by `with`; ended (SIGTERM, then SIGKILL to its group) on leaving. Times are time.monotonic() seconds."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], size: tuple[int, int] = (160, 48)) -> None:
        self.argv, self.env, self.size = list(argv), dict(env), size
        self.raw = bytearray()
        self.pid = 0
        self.fd = -1
        self.started = 0.0

    def __enter__(self) -> PtyProgram:
        self.started = time.monotonic()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(self.argv[0], self.argv, self.env)
        columns, rows = self.size
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.pid, sign)
            except ProcessLookupError:
                break
            end = time.monotonic() + 3
            while time.monotonic() < end:
                self.pump(0.05)
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    os.close(self.fd)
                    return
        os.close(self.fd)

    def pump(self, seconds: float) -> None:
        """Reads what comes for that long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self._read(left):
                return

    def _read(self, timeout: float) -> bool:
        ready, _, _ = select.select([self.fd], [], [], max(0.0, timeout))
        if not ready:
            return True
        try:
            chunk = os.read(self.fd, 65536)
        except OSError:  # EIO: the program ended
            return False
        self.raw += chunk
        return bool(chunk)

    def text(self, since: int = 0) -> str:
        """What was written after byte `since`, without escape sequences: words, not a screen."""
        return ESCAPES.sub(b"", bytes(self.raw[since:])).decode("utf-8", "replace")

    def wait_for(self, pattern: str, timeout: float = 30.0, since: int = 0) -> float:
        """The time at which the pattern was first complete; TimeoutError shows the tail."""
        end = time.monotonic() + timeout
        look = re.compile(pattern)
        while time.monotonic() < end:
            alive = self._read(min(0.5, end - time.monotonic()))
            if look.search(self.text(since)):
                return time.monotonic()
            if not alive:
                break
        raise TimeoutError(f"{pattern!r} did not come; the end was {self.text(since)[-600:]!r}")

    def send(self, keys: str) -> int:
        """Types; returns the number of bytes written by the program so far, as `since` for wait_for."""
        self._read(0)
        before = len(self.raw)
        os.write(self.fd, keys.encode())
        return before

    def cpu_seconds(self) -> float:
        """User and system time of the process so far (its children apart)."""
        parts = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / TICK

    def memory_mib(self) -> float:
        """Resident memory in MiB."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("no VmRSS")
