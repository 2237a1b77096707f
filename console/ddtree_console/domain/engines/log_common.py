"""What every engine's log reader shares: traceback blocks, what decides, evidence; and a reader for any program."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from ddtree_console.domain.engines.base import LogFact

EVIDENCE_LINES = 12
LINE_WIDTH = 500
LINE_LIMIT = 1 << 16
"""characters of a line that are looked at: what decides stands at its beginning."""
_KEPT_BLOCKS = 16
_KEPT_MESSAGE = 30
# Consequences of a failure elsewhere: never the cause while anything else is known. What a line means is not judged
# here: domain.findings does that, with rules.
CONSEQUENCE = re.compile(
    r"Received sigquit|SIGQUIT received|scheduler (?:died|is dead)|scheduler_\d+ .*crashed|Subprocess \S+ .*crashed"
    r"|^EOFError|Connection (?:closed|reset) by peer|should dump|WorkerProc was terminated|"
    r"Engine core initialization failed"
    r"|leaked semaphore|^Killed\b|start request repeated too quickly|No module named 'common_ops'|"
    r"^KeyboardInterrupt|^SystemExit"
    r"|Broken pipe|BrokenPipeError"
)
# In a chain of exceptions the first is the cause, but these only say that something else failed.
EXPLAINED_BY_NEXT = re.compile(r"^(?:subprocess\.)?CalledProcessError\b|^KeyError\b|^StopIteration\b")
# Compiler output has no prefix and stands before or inside a traceback.
COMPILER = re.compile(
    r"^(?:ptxas (?:fatal|error)|nvcc (?:fatal|error)|ptxas .*error|.*: fatal error: |ld: |.*: error: ).*", re.M
)
_TELLING = re.compile(r"exit code:? -(?:9|11|7|6|4)\b|killed by the OOM killer|(?i:out of memory): Killed")
"""consequence lines that tell a cause of their own."""

TRACEBACK = "Traceback (most recent call last):"
_LINKS = ("During handling of the above exception", "The above exception was the direct cause")
EXCEPTION = re.compile(r"[A-Za-z_][\w.]*[a-z]\w*(?::(?=\s|$)|$)")
_FRAME = re.compile(r'\s+File "')
_SYSTEMD = re.compile(
    r"Failed at step (?:EXEC|CHDIR|USER)|Failed to (?:locate executable|execute) |status=(?:203|200|217)/"
    r"|killed by the OOM killer|(?i:out of memory): Killed"
)
_ARGPARSE = re.compile(
    r"error: (?:unrecognized arguments|ambiguous option|argument |the following arguments are required)"
)
_BREAKS = re.compile(r"[\r\n]+")
_BIND = re.compile(r"error while attempting to bind|(?i:address already in use)")


@dataclass
class Block:
    """One traceback. kind: scheduler (the engine's own 'hit an exception'), asgi (one request's), '' any other."""

    kind: str = ""
    rank: str = ""
    phase: str = ""
    linked: bool = False
    outer: str = ""
    last: str = ""
    frames: deque[str] = field(default_factory=lambda: deque(maxlen=4))
    message: list[str] = field(default_factory=list)

    @property
    def uncaught(self) -> bool:
        """Whether it left the main program: its outermost frame is the interpreter's own."""
        return "in _run_module_as_main" in self.outer or ("in <module>" in self.outer and "<string>" not in self.outer)


class Tracebacks:
    """Cuts a stream of unprefixed lines into traceback blocks."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.state = ""
        """'' outside, frames while one is open, message after its exception line."""
        self._linked = False

    def open(self, kind: str = "", rank: str = "", phase: str = "") -> None:
        """A traceback begins; after a link line it continues the chain of the block before."""
        before = self.blocks[-1] if self.blocks else None
        if self._linked and before is not None:
            block = Block(before.kind, before.rank, before.phase, linked=True)
        else:
            block = Block(kind, rank, phase)
        if len(self.blocks) >= _KEPT_BLOCKS:  # the first failures matter; of the rest only the newest
            del self.blocks[_KEPT_BLOCKS // 2]
        self.blocks.append(block)
        self._linked = False
        self.state = "frames"

    def close(self) -> None:
        """An ordinary log line came: the message of the last exception is complete."""
        if self.state == "message":
            self.state, self._linked = "", False

    def feed(self, line: str) -> Block | None:
        """One line while a block is open; the block when this line is its exception."""
        block = self.blocks[-1]
        if self.state == "frames":
            if not line or line[0] in " \t":
                if not block.outer and _FRAME.match(line):
                    block.outer = line
                block.frames.append(line)
            elif EXCEPTION.match(line):
                block.last = line
                self.state = "message"
                return block
            return None
        if line.startswith(_LINKS):
            self._linked = True
        elif line and len(block.message) < _KEPT_MESSAGE:
            block.message.append(line)
        return None

    def chains(self) -> list[list[Block]]:
        """Finished blocks, those that explain one another together, in order."""
        out: list[list[Block]] = []
        for block in self.blocks:
            if not block.last:
                continue
            if block.linked and out:
                out[-1].append(block)
            else:
                out.append([block])
        return out


def decisive(chain: list[Block]) -> Block:
    """The block of a chain that names the cause: the first that is not explained by the next."""
    for block in chain:
        if not EXPLAINED_BY_NEXT.match(block.last):
            return block
    return chain[0]


class Reader:
    """Base of the log readers: keeps what decides. Pure; never raises."""

    def __init__(self) -> None:
        self.tracebacks = Tracebacks()
        self.lines = 0
        self.served = False
        self.failed = False
        """a fatal fact was given."""
        self.stopping = False
        """someone asked it to stop: what dies now is no failure."""
        self.direct: list[tuple[str, str]] = []
        """(what decided, line) of lines that decide by themselves."""
        self.consequences: list[str] = []
        self.compiler: list[str] = []
        self.loose: list[str] = []
        """exception lines outside any traceback: they count while nothing better is known."""
        self.context = ""
        """the line that began what was under way."""
        self.phase = ""
        self._recent: deque[str] = deque(maxlen=EVIDENCE_LINES)
        self._usage = False

    def fatal(self, code: str, text: str) -> list[LogFact]:
        """A fatal fact, once, and never while it is being stopped. code: a verdict code of docs/PROTOCOL.md."""
        if self.failed or self.stopping:
            return []
        self.failed = True
        return [LogFact("fatal", code, text=text)]

    def consequence(self, line: str) -> None:
        """Keeps a line that tells of a failure without naming it."""
        if len(self.consequences) < 8:
            self.consequences.append(line)

    def plain(self, line: str, msg: str = "") -> list[LogFact]:
        """A line that no engine claimed: argparse, a failed bind, systemd's own reasons. msg: without its prefix."""
        if line.startswith("usage: "):
            self._usage = True
        elif "rror" in line and (_ARGPARSE.search(line) or (self._usage and ": error: " in line)):
            self.direct.append(("arguments", line))
            return self.fatal("exit-arguments", line)
        elif "bind" in line or "ddress already" in line:
            if _BIND.search(line) and not self.served:
                self.direct.append(("bind", line))
                return self.fatal("cannot-bind", line)
        elif ("Failed" in line or "illed" in line or "status=2" in line) and _SYSTEMD.search(line):
            self.direct.append(("unit", line))
        elif ("ptxas" in line or "atal" in line) and COMPILER.match(line):
            if line not in self.compiler and len(self.compiler) < 4:
                self.compiler.append(line)
        elif ("rror" in line or "raph failed" in line or "xception" in line) and len(self.loose) < 8:
            text = msg or line
            if "raph failed" in text or (EXCEPTION.match(text) and ": " in text and not self.tracebacks.state):
                (self.consequences if CONSEQUENCE.search(text) else self.loose).append(text)
        return []

    def in_traceback(self, line: str) -> list[LogFact]:
        """A line inside a traceback block. The line that ends it is an exception, perhaps the end of the program."""
        block = self.tracebacks.feed(line)
        if block is None:
            return []
        out = [LogFact("exception", block.kind, text=block.last)]
        if block.kind == "asgi" or EXPLAINED_BY_NEXT.match(block.last):
            return out
        if block.kind == "scheduler" or block.uncaught:
            out.extend(self.fatal("fatal-log", decisive(self.tracebacks.chains()[-1]).last))
        return out

    def _pick(self) -> Block | None:
        """Anchor: the first failing rank's first chain; then what left the main program; then the newest other."""
        found = [decisive(chain) for chain in self.tracebacks.chains() if chain[0].kind != "asgi"]
        own = [b for b in found if not CONSEQUENCE.search(b.last)]
        for group in ([b for b in own if b.kind == "scheduler"], [b for b in own if b.uncaught]):
            if group:
                return group[0]
        if own:
            return own[-1]
        return None if self.consequences and not found else (found[0] if found else None)

    def cause(self) -> tuple[str, str, tuple[str, ...]]:
        """(what decided, decisive line, evidence with it first).

        What decided: arguments | bind | unit | exception | line | consequence, '' for nothing.
        """
        if self.stopping and not self.failed:
            return "", "", ()
        if self.direct:
            how, line = self.direct[0]
            return how, line, self._evidence([line], [])
        block = self._pick()
        if block is not None and not CONSEQUENCE.search(block.last):
            # of interest are the exception's own lines and what the compiler said before it
            compiler = [x for x in block.message if COMPILER.match(x)] or self.compiler
            frames = [x for x in block.frames if x.strip("~^ \t")][-2:]
            rest = [*compiler, *[x for x in block.message if x not in compiler][:4], *frames]
            return "exception", block.last, self._evidence([block.last], rest)
        lines = [*([block.last] if block is not None else []), *self.consequences]
        told = next((line for line in lines if _TELLING.search(line)), "")
        if self.loose and not told:
            return "line", self.loose[0], self._evidence(self.loose, self.compiler)
        if not lines:
            return "", "", ()
        line = told or lines[0]
        return "consequence", line, self._evidence([line], list(self._recent))

    def _evidence(self, first: list[str], rest: list[str]) -> tuple[str, ...]:
        out: list[str] = []
        for line in [*first, *rest, *([self.context] if self.context else []), *self.consequences]:
            short = line[:LINE_WIDTH].rstrip()
            if short and short not in out:
                out.append(short)
        return tuple(out[:EVIDENCE_LINES])


class GenericReader(Reader):
    """For a program of which nothing is known: no phases; exceptions, argparse, a failed bind, systemd's reasons."""

    def feed(self, line: str) -> list[LogFact]:
        """Facts of one journal entry."""
        out: list[LogFact] = []
        for part in _BREAKS.split(line) if "\r" in line or "\n" in line else (line,):
            self.lines += 1
            part = part[:LINE_LIMIT]
            self._recent.append(part)
            if part.endswith(TRACEBACK):
                self.tracebacks.open()
                continue
            if self.tracebacks.state:
                out.extend(self.in_traceback(part))
            if self.tracebacks.state != "frames":
                out.extend(self.plain(part))
        return out
