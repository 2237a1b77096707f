"""Everything that a command prints: host text made harmless, secrets masked, colours only on a terminal."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from ddtree_console.domain.text import visible
from ddtree_console.services.errors import HostError

COLOURS = {"good": "32", "work": "36", "warn": "33", "bad": "31", "dim": "2"}


def safe(text: str) -> str:
    """Host text fit for a terminal: no control characters, no secret."""
    from ddtree_console.domain.secrets import mask  # its patterns take 5 ms to compile, and --help prints no secret

    return visible(mask(text))


def clean(value: Any) -> Any:
    """JSON with every secret masked; control characters are escaped by JSON itself, C1 and bidi become symbols."""
    if isinstance(value, str):
        return safe(value)
    if isinstance(value, Mapping):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(v) for v in value]
    return value


class Output:
    """stdout and stderr of one command."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None, as_json: bool = False) -> None:
        self.out, self.err, self.as_json = out or sys.stdout, err or sys.stderr, as_json
        self.plain = bool(os.environ.get("NO_COLOR")) or not self.out.isatty() or os.environ.get("TERM") == "dumb"

    def paint(self, text: str, colour: str) -> str:
        """`text` in that colour where colours are shown."""
        code = COLOURS.get(colour)
        return text if self.plain or not code else f"\x1b[{code}m{text}\x1b[0m"

    def line(self, text: str = "") -> None:
        """One line at once. The text is ours or went through `safe`."""
        encoding = getattr(self.out, "encoding", None) or "utf-8"
        self.out.write(text.encode(encoding, "replace").decode(encoding) + "\n")
        self.out.flush()

    def json(self, value: Any) -> None:
        """One JSON document on one line."""
        self.out.write(json.dumps(clean(value), ensure_ascii=True) + "\n")
        self.out.flush()

    def note(self, text: str) -> None:
        """A line beside the answer, to stderr."""
        self.err.write(safe(text) + "\n")
        self.err.flush()

    def error(self, error: HostError) -> int:
        """Host, action, cause and next step; the exit code."""
        if self.as_json:
            self.json(
                {
                    "ok": False,
                    "host": error.host,
                    "action": error.action,
                    "cause": error.cause,
                    "next": error.next_step,
                    "code": error.code,
                }
            )
        self.note(f"ddtree-console: {error.host}: {error.action}: {error.cause}")
        self.note(f"  next: {error.next_step}")
        return error.code


def seconds(value: float | None) -> str:
    """3.9s below a minute, 1:48 above; '' for None."""
    if value is None:
        return ""
    if value < 60:
        return f"{value:.1f}s"
    minutes, rest = divmod(int(value), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def clock(wall: float) -> str:
    """Local wall clock time of a moment, '' for an unknown one."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall)) if wall > 0 else ""


def table(rows: list[list[str]]) -> list[str]:
    """Columns padded to their widest cell; the last one as it is."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(w) for cell, w in zip(row[:-1], widths, strict=False)) + "  " + row[-1] for row in rows
    ]
