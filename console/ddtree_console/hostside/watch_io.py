"""The watcher's two pipes: messages out, only when something changed; requests in, line by line."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

BEAT = 2.0


class Sender:
    """Writes messages to `fd`, one a line, at once. A reader that stalls stalls us: there is nobody else to serve."""

    def __init__(self, fd: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self._fd, self._clock = fd, clock
        self._last: dict[str, Any] = {}
        self._errors: dict[str, str] = {}
        self.quiet_since = clock()

    def send(self, kind: str, payload: Mapping[str, Any]) -> None:
        """One message. BrokenPipeError when the console is gone."""
        data = json.dumps({"kind": kind, **payload}, separators=(",", ":")).encode() + b"\n"
        while data:
            data = data[os.write(self._fd, data) :]
        self.quiet_since = self._clock()

    def changed(self, kind: str, payload: Mapping[str, Any], key: Any = None, force: bool = False) -> bool:
        """Sends it where `key` (the payload itself, if none is given) differs from the last one of that kind."""
        key = payload if key is None else key
        if not force and kind in self._last and self._last[kind] == key:
            return False
        self._last[kind] = key
        self.send(kind, payload)
        return True

    def error(self, part: str, text: str) -> None:
        """Names what fails, once; '' says that it works again."""
        if self._errors.get(part, "") != text:
            self._errors[part] = text
            self.send("error", {"part": part, "text": text})

    def beat_in(self) -> float:
        """Seconds until a beat is due."""
        return self.quiet_since + BEAT - self._clock()

    def beat(self, boottime: float) -> None:
        """A sign of life where nothing else was sent for a while."""
        if self.beat_in() <= 0:
            self.send("beat", {"t": round(boottime, 3), "wall": round(time.time(), 3)})


class Requests:
    """Lines from stdin as objects."""

    def __init__(self, fd: int = 0) -> None:
        self.fd = fd
        self.ended = False
        self._rest = b""

    def take(self) -> list[dict[str, Any]]:
        """What arrived; call it when the descriptor is readable. Lines that are no object are left out."""
        data = os.read(self.fd, 1 << 16)
        if not data:
            self.ended = True
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = []
        for line in lines:
            try:
                raw = json.loads(line)
            except ValueError:
                continue
            if isinstance(raw, dict):
                found.append(raw)
        return found
