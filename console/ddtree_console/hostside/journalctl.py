"""journalctl's command lines. Unit names come from a request: they are only ever values of an option."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ddtree_console.hostside.roots import Roots

FIELDS = (
    "MESSAGE",
    "PRIORITY",
    "_SYSTEMD_UNIT",
    "UNIT",
    "_SYSTEMD_INVOCATION_ID",
    "INVOCATION_ID",
    "_PID",
    "SYSLOG_IDENTIFIER",
    "_LINE_BREAK",
)

_INVOCATION = re.compile(r"[0-9a-f]{32}", re.ASCII)
_CURSOR = re.compile(r"[\x21-\x7e]{1,500}", re.ASCII)
# Inside a JSON string every quote has a backslash before it, so this finds the key itself and nothing else.
_CURSOR_KEY = re.compile(rb'"__CURSOR"\s*:\s*"([^"\\]+)"')


HIDDEN = "this user may not read the system's journal: no entries are shown (join group systemd-journal, or allow sudo)"


def hidden(roots: Roots) -> str:
    """Why this user sees nothing, '' where that is not so. journalctl says it only where it can open no file at all."""
    if os.geteuid() == 0 or roots.path:
        return ""
    for base_dir in ("/var/log/journal", "/run/log/journal"):
        for file in Path(base_dir).glob("*/system.journal"):
            if os.access(file, os.R_OK):
                return ""
    return HIDDEN


def base() -> list[str]:
    """Lossless JSON of the fields that are kept. `--all`: without it long messages come as null."""
    return ["journalctl", "--no-pager", "--all", "--output=json", f"--output-fields={','.join(FIELDS)}"]


def matches(units: Sequence[str], invocation: str | None) -> list[str]:
    """Options that choose entries: of an invocation (what it wrote, and what systemd wrote of it), else of units."""
    if invocation:
        if not _INVOCATION.fullmatch(invocation):
            raise ValueError(f"not an invocation id: {invocation!r}")
        return [f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}"]
    return [f"--unit={unit}" for unit in units]


def checked_cursor(cursor: object) -> str | None:
    """A cursor that may go on a command line, None for none. ValueError for anything else."""
    if cursor is None or cursor == "":
        return None
    if not isinstance(cursor, str) or not _CURSOR.fullmatch(cursor):
        raise ValueError("not a cursor")
    return cursor


def cursor_of(line: bytes) -> str | None:
    """The cursor in a line of journalctl's JSON."""
    found = _CURSOR_KEY.search(line)
    return found.group(1).decode("ascii", "replace") if found else None
