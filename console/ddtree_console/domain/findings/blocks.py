"""Tracebacks put together again: their lines are journal entries of their own, and ranks print theirs at one time."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

TRACEBACK = "Traceback (most recent call last)"
LINKS = ("During handling of the above exception", "The above exception was the direct cause")
KEPT_FRAMES, KEPT_MESSAGE, KEPT_PIDS = 24, 60, 64
_NAME = r"(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*|[a-z]\w*(?:error|exception|timeout))"
EXCEPTION = re.compile(_NAME + r"(?::(?=\s|$)|$)")
"""the last line of a traceback."""
LOOSE = re.compile(
    r"(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Timeout|Failed|OutOfResources|Exit)"
    r"|Error|Exception|(?<=\.)(?:error|gaierror|timeout))(?::(?=\s|$)|$)"
)
"""an exception's line where no traceback is open: nothing else looks like it."""
_FRAME = re.compile(r'\s+File "')
_MAIN = re.compile(
    r'File "(?!<string>)(?:(?!site-packages|dist-packages)[^"])+"|(?:launch_server|__main__)\.py"|/bin/[^/"]+"'
)
"""frames of a main program; a library's own module frame stands outermost where its import was tried and caught."""
_MARKS = frozenset("^~ \t|")


@dataclass(eq=False)
class Block:
    """One traceback. kind: scheduler | asgi (one request's) | thread | loose (the exception alone) | ''."""

    line: int
    kind: str = ""
    rank: str = ""
    phase: str = ""
    frames: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_FRAMES))
    outer: str = ""
    exception: str = ""
    prefix: str = ""
    """what stood before the exception: a message goes on with the same stamp on every line, or with none."""
    message: list[str] = field(default_factory=list)
    explains: bool = False
    """an exception that was raised while this one was handled follows."""
    root: Block | None = None
    """the first of the chain, None for the first itself."""
    left: bool = False
    """of a first one: whether something of the chain left the main program."""

    @property
    def anchored(self) -> bool:
        """Whether it ended a process: the engine's own 'hit an exception', or out of the main program."""
        root = self.root or self
        return root.kind == "scheduler" or root.left

    def began(self, frame: str) -> None:
        """Takes the outermost frame."""
        self.outer = frame[:300]
        if "_run_module_as_main" in frame or ("in <module>" in frame and _MAIN.search(frame) is not None):
            (self.root or self).left = True


@dataclass
class _Stream:
    waiting: list[Block] = field(default_factory=list)
    """tracebacks whose exception has not come yet, oldest first."""
    current: Block | None = None
    linked: Block | None = None
    kind: str = ""


class Tracebacks:
    """Feeds lines of any number of processes; says what each line is."""

    def __init__(self) -> None:
        self._streams: dict[int | None, _Stream] = {}

    def feed(
        self, number: int, message: str, rank: str, prefix: str, pid: int | None, phase: str
    ) -> tuple[str, Block | None]:
        """(place, block): place is open | frame | exception | message | link | line."""
        stream = self._streams.get(pid)
        if TRACEBACK in message:
            return "open", self._open(number, message, rank, pid, phase)
        first = message[:1]
        if stream is None or not (stream.waiting or stream.current):
            if first == " " and _FRAME.match(message):
                block = self._open(number, "", rank, pid, phase)
                block.began(message)
                block.frames.append(message[:300])
                return "frame", block
            if first.isalpha() and LOOSE.match(message) is not None:
                return "exception", self._loose(number, message, rank, prefix, pid, phase)
            return "line", None
        if stream.waiting:
            if not first or first in " \t":
                self._frame(stream, message)
                return "frame", stream.waiting[-1]
            if EXCEPTION.match(message) is not None:
                block = self._of(stream, rank) if prefix else stream.waiting.pop(0)
                if not block.frames and stream.waiting:  # two ranks at once: the frames went to the newer one
                    block.frames.extend(stream.waiting[-1].frames)
                block.exception, block.prefix, stream.current = message, prefix, block
                return "exception", block
            if not prefix and set(message) <= _MARKS:
                return "frame", stream.waiting[-1]
            return "line", None
        return self._after(stream, number, message, rank, prefix, pid, phase)

    def _after(
        self, stream: _Stream, number: int, message: str, rank: str, prefix: str, pid: int | None, phase: str
    ) -> tuple[str, Block | None]:
        """A line after an exception: more of its message, a link to the next one, or something else."""
        block = stream.current
        if block is None:
            return "line", None
        if message.startswith(LINKS):
            block.explains, stream.linked = True, block
            return "link", block
        if LOOSE.match(message) is not None:
            return "exception", self._loose(number, message, rank, prefix, pid, phase)
        if _FRAME.match(message):
            opened = self._open(number, "", rank, pid, phase)
            opened.began(message)
            opened.frames.append(message[:300])
            return "frame", opened
        if prefix and message and prefix != block.prefix and (rank != block.rank or message[0] not in " \t"):
            stream.current, stream.linked = None, None
            return "line", None
        if len(block.message) >= KEPT_MESSAGE:
            stream.current = None
            return "line", None
        block.message.append(message[:400])
        return "message", block

    def close(self, pid: int | None) -> None:
        """The process is gone: what it had not finished stays unfinished."""
        self._streams.pop(pid, None)

    def next_is(self, pid: int | None, kind: str) -> None:
        """What the next traceback of that process is, where a line before it says so."""
        self._stream(pid).kind = kind

    def _stream(self, pid: int | None) -> _Stream:
        stream = self._streams.get(pid)
        if stream is None:
            if len(self._streams) >= KEPT_PIDS:
                del self._streams[next(iter(self._streams))]
            stream = self._streams[pid] = _Stream()
        return stream

    def _open(self, number: int, message: str, rank: str, pid: int | None, phase: str) -> Block:
        stream = self._stream(pid)
        before, kind = stream.linked, stream.kind
        stream.kind = ""
        if before is not None:
            block = Block(number, before.kind, before.rank, before.phase, root=before.root or before)
        else:
            if message.startswith("Scheduler hit an exception"):
                kind = "scheduler"
            block = Block(number, kind, rank, phase)
        stream.linked = stream.current = None
        if len(stream.waiting) >= 32:
            del stream.waiting[16]
        stream.waiting.append(block)
        return block

    def _loose(self, number: int, message: str, rank: str, prefix: str, pid: int | None, phase: str) -> Block:
        stream = self._stream(pid)
        block = Block(number, "loose", rank, phase, exception=message, prefix=prefix)
        stream.current, stream.linked = block, None
        return block

    @staticmethod
    def _frame(stream: _Stream, message: str) -> None:
        block = stream.waiting[-1]
        text = message.strip()
        if not text or set(text) <= _MARKS:
            return
        if not block.outer and _FRAME.match(message):
            block.began(message)
        block.frames.append(message[:300])

    @staticmethod
    def _of(stream: _Stream, rank: str) -> Block:
        """The oldest waiting traceback of that rank, else the oldest of all."""
        for i, block in enumerate(stream.waiting):
            if block.rank == rank:
                return stream.waiting.pop(i)
        return stream.waiting.pop(0)
