"""The journal follower: passes journalctl's lines on, restarts it by cursor, names gaps, ends with its stdin."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddtree_console.hostside import child, journalctl, request_json, systemctl
from ddtree_console.hostside.roots import Roots
from ddtree_console.hostside.watch_config import is_unit

CHUNK = 256 * 1024
LONGEST_TAIL = 100_000
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
# A journalctl that ran this long before it died is restarted without delay.
STEADY = 10.0
FIRST_LOOK = 20.0
"""seconds at most for the look whether there is any entry at all."""


@dataclass(frozen=True)
class Request:
    """What to follow. cursor: of the last entry that the console has. tail: entries of the past without a cursor."""

    units: Sequence[str]
    cursor: str | None = None
    tail: int = 100
    invocation: str | None = None


def request(raw: Mapping[str, Any]) -> Request:
    """The request in that JSON. ValueError."""
    units = [unit for unit in raw.get("units") or () if is_unit(unit)]
    invocation = raw.get("invocation") or None
    if not units and not invocation:
        raise ValueError("no unit to follow")
    tail = raw.get("tail")
    return Request(
        units,
        journalctl.checked_cursor(raw.get("cursor")),
        min(LONGEST_TAIL, max(0, tail)) if isinstance(tail, int) else 100,
        str(invocation) if invocation else None,
    )


class Out:
    """Lines to stdout, whole ones only, so that our own never fall into the middle of journalctl's."""

    def __init__(self, fd: int = 1) -> None:
        self._fd = fd

    def write(self, data: bytes) -> None:
        """All of it. BrokenPipeError when nobody reads."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def note(self, kind: str, **keys: str) -> None:
        """One of our own lines."""
        self.write(json.dumps({"_ddtree": kind, **keys}).encode() + b"\n")


class Follower:
    """One journalctl at a time, followed from where the last one ended."""

    def __init__(self, asked: Request, out: Out, stdin: int = 0) -> None:
        self._asked, self._out, self._stdin = asked, out, stdin
        self._cursor = asked.cursor
        self._resuming = False
        self._rest: list[bytes] = []
        self._errors = b""
        self._said = ""

    def argv(self) -> list[str]:
        """journalctl from the cursor itself on (the entry there proves that nothing is missing), or from the tail."""
        chosen = journalctl.matches(self._asked.units, self._asked.invocation)
        if self._cursor:
            where = [f"--cursor={self._cursor}", "--no-tail"]
        elif systemctl.run([*journalctl.base(), "--lines=1", *chosen], FIRST_LOOK).out.strip():
            where = [f"--lines={self._asked.tail}"]
        else:
            # Where nothing matches yet, 252 with --lines shows of the first entries that come only the last one.
            where = ["--no-tail"]
        return [*journalctl.base(), "--follow", *where, *chosen]

    def run(self) -> None:
        """Until stdin ends. BrokenPipeError when nobody reads any more."""
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                reader = child.start(self.argv())
            except OSError as error:
                self._note_error(f"journalctl: {error.strerror}")
            else:
                try:
                    if self._follow(reader):
                        return
                finally:
                    status = child.end(reader)
                if self._cursor is not None or self._asked.cursor is None:
                    self._note_error(f"journalctl ended with status {status}: started again at the cursor")
            pause = FIRST_PAUSE if time.monotonic() - began > STEADY else min(LONGEST_PAUSE, pause * 2)
            if self._stdin_ends_within(pause):
                return

    def _stdin_ends_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._stdin, selectors.EVENT_READ)
            while (left := end - time.monotonic()) > 0:
                if waiting.select(left) and not os.read(self._stdin, CHUNK):
                    return True
        return False

    def _follow(self, reader: subprocess.Popen[bytes]) -> bool:
        """Passes its lines on until it ends (False) or stdin does (True)."""
        assert reader.stdout is not None and reader.stderr is not None
        self._resuming, self._rest, self._errors = self._cursor is not None, [], b""
        out, err = reader.stdout.fileno(), reader.stderr.fileno()
        with selectors.DefaultSelector() as waiting:
            for fd in (self._stdin, out, err):
                waiting.register(fd, selectors.EVENT_READ)
            while True:
                for key, _ in waiting.select():
                    data = os.read(key.fd, CHUNK)
                    if key.fd == self._stdin:
                        if not data:
                            return True
                    elif key.fd == out:
                        if not data:
                            return False
                        self._pass_on(data)
                    elif data:
                        self._errors = (self._errors + data)[-4096:]
                        self._note_errors()
                    else:
                        waiting.unregister(err)

    def _pass_on(self, data: bytes) -> None:
        cut = data.rfind(b"\n") + 1
        if not cut:
            self._rest.append(data)
            return
        whole = b"".join((*self._rest, data[:cut]))
        self._rest = [data[cut:]] if cut < len(data) else []
        if self._resuming:
            whole = self._join(whole)
        if whole:
            last = whole[whole.rfind(b"\n", 0, len(whole) - 1) + 1 :]
            self._cursor = journalctl.cursor_of(last) or self._cursor
            self._out.write(whole)

    def _join(self, whole: bytes) -> bytes:
        """After a resume: drops the entry at the cursor, which the console has, or says that it is gone."""
        self._resuming, self._said = False, ""
        first, _, rest = whole.partition(b"\n")
        if journalctl.cursor_of(first) == self._cursor:
            return rest
        self._out.note("gap", why="the entry at the cursor is gone (vacuumed or rotated away): entries may be missing")
        return whole

    def _note_errors(self) -> None:
        *lines, self._errors = self._errors.split(b"\n")
        for line in lines:
            self._note_error(line.decode("utf-8", "replace").strip())

    def _note_error(self, text: str) -> None:
        """Each error once until something else happens; a cursor that journalctl refuses is given up, with a gap."""
        if text and text != self._said:
            self._said = text
            self._out.note("error", text=text)
        if self._cursor and ("seek to cursor" in text or "parse cursor" in text.lower()):
            self._cursor = None
            self._out.note("gap", why="the journal does not know the cursor: following from its newest entries")


def main(roots: Roots, args: list[str]) -> int:
    """Follows until stdin ends."""
    try:
        asked = request(request_json.read_first())
        journalctl.matches(asked.units, asked.invocation)
    except ValueError as error:
        Out().note("error", text=str(error))
        return 2
    out = Out()
    hidden = journalctl.hidden(roots)
    if hidden:
        out.note("error", text=hidden)
    Follower(asked, out).run()
    return 0
