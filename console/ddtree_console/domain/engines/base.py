"""What the rest needs of an engine. One module an engine implements it; `get(name)` in registry.py finds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ddtree_console.domain.spec import Profile, Service


@dataclass(frozen=True)
class LogFact:
    """One thing that a log line says.

    kind: phase (name, state run|ok, detail) | bar (name, done, total, detail) | value (name, value) | ready |
          fatal (name = code, text = the decisive line) | exception (text; a traceback's last line, the cause if a
          wrapper line follows) | wrapper (a consequence line, never a cause) | warning (text) | access (our own probe)
          | decode (figures of a `Decode batch` line in value) | arguments (value: flag with dashes -> value, as logged)
    """

    kind: str
    name: str = ""
    state: str = ""
    text: str = ""
    done: int | None = None
    total: int | None = None
    value: Any = None


class LogReader(Protocol):
    """Stateful reader of one invocation's log: feed lines in order, get facts. Pure: no clock, no I/O."""

    def feed(self, line: str) -> list[LogFact]:
        """Facts of one journal entry (it may hold a carriage-return bar or several lines)."""
        ...

    def cause(self) -> tuple[str, str, tuple[str, ...]]:
        """After an exit: (what decided, cause line, evidence lines), from what was read; ('', '', ()) when nothing is
        known. What the line means is told by domain.findings."""
        ...


@dataclass(frozen=True)
class Request:
    """An HTTP request. body: JSON object for POST, None for GET."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Figures:
    """Figures of a running server; None where the answer lacks them."""

    running: int | None = None
    waiting: int | None = None
    tok_s: float | None = None
    accept_len: float | None = None


@dataclass(frozen=True)
class FlagHelp:
    """One flag of the launch editor. kind: float | int | bool | str. Limits inclusive; None = open."""

    name: str
    kind: str
    help: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Command:
    """A rendered launch: argv with the interpreter first, environment to add, warnings to show."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class DialectError(ValueError):
    """The speculative intent cannot be spelled for this build; the text says which dialects can."""


class Engine(Protocol):
    """An engine's flags, log lines, endpoints and dialects."""

    name: str

    def command(self, profile: Profile, service: Service) -> Command:
        """The launch of this profile in this slot; DialectError when the intent has no spelling."""
        ...

    def editor_flags(self) -> Sequence[FlagHelp]:
        """Flags offered in the launch editor, in order."""
        ...

    def reader(self) -> LogReader:
        """A fresh log reader."""
        ...

    def info_requests(self) -> Sequence[Request]:
        """Model info, best first; any 200 passes the `info` rung. 404 = try the next."""
        ...

    def server_info_requests(self) -> Sequence[Request]:
        """Effective flags, best first; asked once when ready (it can hang on a hung scheduler)."""
        ...

    def token_requests(self, info: Mapping[str, Any]) -> Sequence[Request]:
        """One real token, best first; `info` is server info where known ({} otherwise)."""
        ...

    def token_made(self, body: Any) -> bool:
        """Whether that answer holds at least one generated token."""
        ...

    def effective(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """flag name with dashes -> effective value, from server info."""
        ...

    def figures(self, metrics_text: str) -> Figures:
        """Figures in a /metrics answer."""
        ...

    def figures_of_info(self, info: Mapping[str, Any]) -> Figures:
        """Figures in a server-info answer."""
        ...
