"""One line of `journalctl -o json` as an entry, and pieces of an over-long line put together again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ddtree_console.domain.text import decode_message

JOINED_LIMIT = 1 << 20


@dataclass(frozen=True)
class Entry:
    """A journal entry. when: wall clock seconds (0.0 unknown). line_break: '' whole line, else why journald split it
    (line-max, nul, eof, ...). unit and invocation are those that the entry is about, also in systemd's own messages."""

    cursor: str = ""
    when: float = 0.0
    unit: str = ""
    text: str = ""
    priority: int = 6
    invocation: str = ""
    pid: int = 0
    ident: str = ""
    line_break: str = ""


def _text(raw: Mapping[str, Any], *names: str) -> str:
    for name in names:
        value = raw.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value:
            return decode_message(value)
    return ""


def _number(raw: Any, default: int) -> int:
    try:
        return int(raw)
    except (TypeError, ValueError, OverflowError):
        return default


def entry_of(raw: Mapping[str, Any]) -> Entry:
    """The entry in an already decoded object."""
    return Entry(
        cursor=_text(raw, "__CURSOR"),
        when=_number(raw.get("__REALTIME_TIMESTAMP"), 0) / 1e6,
        unit=_text(raw, "UNIT", "_SYSTEMD_UNIT"),
        text=decode_message(raw["MESSAGE"]) if "MESSAGE" in raw else "",
        priority=_number(raw.get("PRIORITY"), 6),
        invocation=_text(raw, "INVOCATION_ID", "_SYSTEMD_INVOCATION_ID"),
        pid=_number(raw.get("_PID"), 0),
        ident=_text(raw, "SYSLOG_IDENTIFIER"),
        line_break=_text(raw, "_LINE_BREAK"),
    )


def _object(line: bytes) -> Mapping[str, Any] | None:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return raw if isinstance(raw, dict) else None


def parse_entry(line: bytes) -> Entry | None:
    """The entry in a line; None for a torn line, one of our own markers, or anything that is no entry. Never raises."""
    raw = _object(line)
    if raw is None or "_ddtree" in raw or ("__CURSOR" not in raw and "MESSAGE" not in raw):
        return None
    try:
        return entry_of(raw)
    except OverflowError:  # a time of more digits than a float holds
        return None


def parse_marker(line: bytes) -> tuple[str, str] | None:
    """(kind, text) of one of our own marker lines: ('gap', why) or ('error', text); None for any other line."""
    if b'"_ddtree"' not in line:
        return None
    raw = _object(line)
    if raw is None or not isinstance(raw.get("_ddtree"), str):
        return None
    return raw["_ddtree"], str(raw.get("why", raw.get("text", "")))


class Joiner:
    """Joins the pieces that journald makes of a line above 48 KiB (line-max) or with a NUL in it (nul).

    A piece waits for its successor of the same unit and process; `flush` gives what still waits. A joined text stops
    growing at 1 MiB. The joined entry has the cursor of its last piece, so that resuming never repeats half a line.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, int, str], Entry] = {}

    def feed(self, entry: Entry) -> Entry | None:
        """The whole entry that this one completes, or None while pieces are missing."""
        if not self._open and entry.line_break not in ("line-max", "nul"):
            return entry
        key = (entry.unit, entry.pid, entry.ident)
        before = self._open.pop(key, None)
        if before is not None:
            glue = "\0" if before.line_break == "nul" else ""
            entry = replace(entry, text=(before.text + glue + entry.text)[:JOINED_LIMIT], when=before.when)
        if entry.line_break in ("line-max", "nul"):
            self._open[key] = entry
            return None
        return entry

    def flush(self) -> Iterator[Entry]:
        """What still waits for its successor, oldest first; afterwards nothing waits."""
        waiting, self._open = list(self._open.values()), {}
        yield from waiting
