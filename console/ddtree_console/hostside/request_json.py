"""A command's request on stdin, and its refusal on stdout."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ddtree_console.hostside.watch_config import is_unit


def read() -> dict[str, Any]:
    """The object on stdin: its first line, or all of it. ValueError where there is none."""
    raw = json.loads(sys.stdin.buffer.readline() or b"null")
    if not isinstance(raw, dict):
        raise ValueError("the request is not a JSON object")
    return raw


def read_first() -> dict[str, Any]:
    """The object in the first line of stdin, byte by byte: what follows stays unread, and its end can be waited for."""
    line = bytearray()
    while (byte := os.read(0, 1)) and byte != b"\n":
        line += byte
    raw = json.loads(bytes(line) or b"null")
    if not isinstance(raw, dict):
        raise ValueError("the request is not a JSON object")
    return raw


def unit_of(raw: dict[str, Any]) -> str:
    """Its unit. ValueError where that is no plain unit name."""
    unit = raw.get("unit")
    if not is_unit(unit):
        raise ValueError(f"not a unit name: {unit!r}")
    return str(unit)


def refuse(code: int, cause: str, next_step: str) -> int:
    """An error in the form that every command uses; returns the exit status."""
    sys.stdout.write(json.dumps({"ok": False, "code": code, "cause": cause, "next": next_step}) + "\n")
    return code
