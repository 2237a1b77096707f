"""One slow call at a time beside a loop that must not wait: the loop polls, or sleeps on `fileno`."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any

WAKE = os.O_NONBLOCK | os.O_CLOEXEC


class Background:
    """start() a call, poll() for its result. The thread is a daemon: a call that hangs never keeps the process."""

    def __init__(self) -> None:
        self._done: list[Any] = []
        self.busy = False
        self._read, self._write = os.pipe2(WAKE)

    def fileno(self) -> int:
        """Readable once a result is there."""
        return self._read

    def start(self, call: Callable[[], Any]) -> None:
        """Runs the call; RuntimeError while one runs. A call that raises gives its exception as the result."""
        if self.busy:
            raise RuntimeError("busy")
        self.busy = True
        threading.Thread(target=self._run, args=(call,), daemon=True).start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            result = call()
        except Exception as error:  # handed to the caller, who knows what it means
            result = error
        self._done.append(result)
        os.write(self._write, b"x")

    def poll(self) -> tuple[bool, Any]:
        """(True, result) once, else (False, None)."""
        if not self._done:
            return False, None
        with contextlib.suppress(BlockingIOError):  # the result may be there an instant before its byte
            os.read(self._read, 16)
        self.busy = False
        return True, self._done.pop()

    def close(self) -> None:
        """Frees the pipe unless a call still runs, whose end would need it."""
        if not self.busy:
            os.close(self._read)
            os.close(self._write)
