"""Files that survive a power cut whole: written beside, synced, renamed, and the folder synced."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def sync_dir(folder: Path) -> None:
    """Makes a rename or removal in that folder durable. OSError when the folder cannot be opened."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_dir(folder: Path) -> None:
    """The folder and its parents, 0755 whatever the umask."""
    missing = [folder, *folder.parents]
    for path in reversed([p for p in missing if not p.exists()]):
        with contextlib.suppress(FileExistsError):
            path.mkdir()
        path.chmod(0o755)


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """The whole new content or the whole old one, also after a power cut. OSError leaves the old one."""
    make_dir(path.parent)
    spare = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        fd = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fchmod(fd, mode)
            os.fsync(fd)
        finally:
            os.close(fd)
        spare.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            spare.unlink()
        raise
    sync_dir(path.parent)


def write_json(path: Path, value: Mapping[str, Any], mode: int = 0o644) -> None:
    """write_atomic of one JSON object."""
    write_atomic(path, json.dumps(value, indent=1, sort_keys=True).encode() + b"\n", mode)


def read_text(path: Path) -> str | None:
    """The text, None where there is no such file to read."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return None


def read_json(path: Path) -> dict[str, Any]:
    """The object in that file; {} where it is missing, torn or something else."""
    try:
        raw = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return raw if isinstance(raw, dict) else {}


def append_line(path: Path, line: str) -> None:
    """One line at the end, synced. OSError when it did not get there; a torn line before it is closed first."""
    make_dir(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    try:
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        view = memoryview((b"\n" if torn else b"") + line.encode("utf-8", "surrogateescape") + b"\n")
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def remove(path: Path) -> bool:
    """Removes a file durably; True when it was there. OSError when it is there and stays."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    sync_dir(path.parent)
    return True
