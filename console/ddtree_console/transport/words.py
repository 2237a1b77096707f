"""What may stand on a remote command line, and how a byte stream becomes lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_WORD = re.compile(r"[A-Za-z0-9_./=:@-]+")

LINE_CAP = 8 * 1024 * 1024


def command_line(argv: Sequence[str]) -> str:
    """The words joined; ValueError for a word that a shell could take for anything but itself. Values go to stdin."""
    if not argv:
        raise ValueError("an empty command")
    for word in argv:
        if not _WORD.fullmatch(word):
            raise ValueError(f"not a fixed word: {word!r}; values travel on stdin")
    return " ".join(argv)


class Lines:
    """Splits chunks into lines of at most `cap` bytes; what a longer one loses is counted in its last words."""

    def __init__(self, cap: int = LINE_CAP) -> None:
        self._cap = cap
        self._parts: list[bytes] = []
        self._size = 0
        self._lost = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that this chunk completes, without their newlines."""
        first, *rest = chunk.split(b"\n")
        self._keep(first)
        for part in rest:
            yield self._take()
            self._keep(part)

    def end(self) -> Iterator[bytes]:
        """A last line without newline, if there is one."""
        if self._parts:
            yield self._take()

    def _keep(self, part: bytes) -> None:
        if not part:
            return
        room = self._cap - self._size
        if len(part) > room:
            self._lost += len(part) - room
            part = part[:room]
        if part:
            self._parts.append(part)
            self._size += len(part)

    def _take(self) -> bytes:
        line = b"".join(self._parts)
        if self._lost:
            line += b" [cut: %d more bytes]" % self._lost
        self._parts, self._size, self._lost = [], 0, 0
        return line
