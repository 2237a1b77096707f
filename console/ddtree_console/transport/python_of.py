"""Another interpreter for the host code, where a host has no fit python3: a unit's, if only root can change it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from ddtree_console.transport.base import Transport
from ddtree_console.transport.words import command_line

_PATH = re.compile(r"path=(/[A-Za-z0-9_./=:@-]+) ;")
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
LOOSE = 0o022


async def candidates(transport: Transport, units: Sequence[str], not_this: str) -> list[str]:
    """Interpreters that those units start, each owned by root on its whole path, links followed."""
    words = [unit for unit in units if _fixed(unit)]
    if not words:
        return []
    done = await transport.run(["systemctl", "show", "--no-pager", "-p", "ExecStart", *words])
    found = dict.fromkeys(_PATH.findall(done.stdout.decode("utf-8", "replace")))
    fit = []
    for path in found:
        named = PurePosixPath(path).name
        if path != not_this and _PYTHON.fullmatch(named) and await roots_own(transport, path):
            fit.append(path)
    return fit


def _fixed(word: str) -> bool:
    try:
        command_line([word])
    except ValueError:
        return False
    return not word.startswith("-")


async def roots_own(transport: Transport, path: str) -> bool:
    """Whether nobody but root can change the file, any folder above it, or what its links lead to."""
    linked = await transport.run(["readlink", "-f", path])
    real = linked.stdout.decode("utf-8", "replace").strip()
    if linked.status != 0 or not real.startswith("/") or not _fixed(real):
        return False
    parts: dict[str, None] = {}
    for end in (path, real):
        # A venv's interpreter is a link, and pyvenv.cfg beside its folder decides what it imports.
        parts.update(dict.fromkeys(str(p) for p in (PurePosixPath(end), *PurePosixPath(end).parents)))
    # Terse output: name, size, blocks, mode in hex, uid, ... An own format would need a %, which is no fixed word.
    stat = await transport.run(["stat", "-L", "-t", *parts])
    lines = stat.stdout.decode("ascii", "replace").splitlines()
    return stat.status == 0 and len(lines) == len(parts) and all(map(_roots_line, lines))


def _roots_line(line: str) -> bool:
    fields = line.split()
    try:
        return fields[4] == "0" and not int(fields[3], 16) & LOOSE
    except (IndexError, ValueError):
        return False
