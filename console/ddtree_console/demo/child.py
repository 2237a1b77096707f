"""One child process of the supervisor: started without a shell, its output cut into entries, its end awaited."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

from ddtree_console.demo.journal_store import LineSplitter
from ddtree_console.demo.unit_state import CLD_DUMPED, CLD_EXITED, CLD_KILLED, Exit

Emit = Callable[[int, bytes, str], None]
"""(pid, line, line break) of each entry."""


class Child:
    """A process in a session of its own. OSError from the constructor when it cannot be executed."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str, emit: Emit) -> None:
        loop = asyncio.get_running_loop()
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        try:
            self._process = subprocess.Popen(
                list(argv),
                env=dict(env),
                cwd=cwd or "/",
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                start_new_session=True,
            )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        self.pid = self._process.pid
        self.ended: asyncio.Future[Exit] = loop.create_future()
        self._loop, self._reader = loop, reader
        self._lines = LineSplitter(lambda line, line_break: emit(self.pid, line, line_break))
        self._fd = os.pidfd_open(self.pid)
        loop.add_reader(self._fd, self._exited)
        loop.add_reader(reader, self._readable)

    def _exited(self) -> None:
        found = os.waitid(os.P_PIDFD, self._fd, os.WEXITED | os.WNOHANG)
        if found is None:
            return
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1
        self._process.returncode = found.si_status
        self.drain()
        code = found.si_code if found.si_code in (CLD_EXITED, CLD_KILLED, CLD_DUMPED) else CLD_KILLED
        if not self.ended.done():
            self.ended.set_result(Exit(code, found.si_status))

    def _readable(self) -> None:
        self._read(65536)

    def _read(self, size: int) -> bool:
        """True when there may be more to read now."""
        if self._reader < 0:
            return False
        try:
            data = os.read(self._reader, size)
        except BlockingIOError:
            return False
        if data:
            self._lines.feed(data)
            return True
        self._lines.close()
        self._loop.remove_reader(self._reader)
        os.close(self._reader)
        self._reader = -1
        return False

    def drain(self) -> None:
        """Takes what the process has written so far, at most a few MiB at once."""
        for _ in range(64):
            if not self._read(65536):
                return

    def kill(self, number: int = signal.SIGKILL) -> None:
        """A signal, unless it has been waited for."""
        if self._fd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, number)

    def close(self) -> None:
        """Stops watching its output; what it still writes is lost."""
        if self._reader >= 0:
            self.drain()
        if self._reader >= 0:
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self._reader = -1

    def abandon(self) -> None:
        """After a power loss: collects the corpse and closes everything."""
        self.kill()
        if self._fd >= 0:
            os.waitid(os.P_PIDFD, self._fd, os.WEXITED)
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd, self._process.returncode = -1, -9
        self.close()
        self.ended.cancel()
