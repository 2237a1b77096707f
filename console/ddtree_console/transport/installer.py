"""Runs on a host, as text on the stdin of its python3 (>= 3.9): unpacks the host code once. Stands alone: stdlib only.

Root installs below VAR/bin, or below RUN where that disk is full or read-only; anybody else into their cache folder,
read-only use. A folder that is there already is compared, never written to.
"""

from __future__ import annotations

import compileall
import errno
import io
import json
import os
import platform
import py_compile
import shutil
import stat
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

VAR, RUN = "/var/lib/ddtree-console", "/run"
DISK = {errno.ENOSPC: "disk full", errno.EDQUOT: "quota exceeded", errno.EROFS: "read-only file system"}


class Refused(Exception):
    """Nothing was installed: the cause, and what a person can do."""

    def __init__(self, cause: str, next_step: str) -> None:
        super().__init__(cause)
        self.next_step = next_step


def roots_of(path: str) -> tuple[str, str]:
    """(var, run) from a roots file."""
    raw = json.loads(Path(path).read_text("utf-8")) if path else {}
    return str(raw.get("var") or VAR), str(raw.get("run") or RUN)


def others_can_write(folder: Path) -> str:
    """The first part of the path that somebody besides root could change; '' when nobody can.

    A sticky folder such as /tmp lets nobody rename what root owns in it.
    """
    for part in [*reversed(folder.parents), folder]:
        try:
            about = part.stat()
        except FileNotFoundError:
            return ""
        loose = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not about.st_mode & stat.S_ISVTX
        if about.st_uid != 0 or loose:
            return str(part)
    return ""


def files_of(data: bytes) -> Mapping[str, bytes]:
    """What the archive holds. Names are ours, but none may leave the folder."""
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar.getmembers():
            file = tar.extractfile(member)
            if file is None or member.name.startswith("/") or ".." in Path(member.name).parts:
                raise Refused(f"odd archive member {member.name}", "install the console again")
            found[member.name] = file.read()
    return found


def differs(folder: Path, files: Mapping[str, bytes]) -> str:
    """The first file that is not what it should be; '' for none."""
    for name, data in files.items():
        try:
            if (folder / name).read_bytes() != data:
                return name
        except OSError:
            return name
    return ""


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """All files, synced, with bytecode beside them: the host code runs with -B and would compile at each start."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(str(folder), quiet=2, invalidation_mode=unchecked, stripdir=str(folder))
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def unpack(base: Path, name: str, files: Mapping[str, bytes]) -> Path:
    """BASE/NAME, made whole beside and renamed. OSError (disk) or Refused."""
    final = base / name
    if not final.exists():
        base.mkdir(parents=True, exist_ok=True)
        spare = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=base))
        try:
            write(spare, files)
            spare.rename(final)
        except OSError:
            shutil.rmtree(spare, ignore_errors=True)
            if not final.exists():
                raise
    if os.geteuid() == 0:
        loose = others_can_write(final)
        if loose:
            raise Refused(f"{loose} can be written by others than root", f"chown root {loose}; chmod go-w {loose}")
    wrong = differs(final, files)
    if wrong:
        raise Refused(f"{final}/{wrong} is not what was installed", f"look who changed it, then: rm -r {final}")
    return final


def install(data: bytes, name: str, roots: str) -> dict[str, object]:
    """The answer: {"installed", "where", "python", "uid", "note"}. Refused."""
    var, run = roots_of(roots)
    files = files_of(data)
    if os.geteuid() == 0 or roots:
        bases = [Path(var, "bin"), Path(run, "ddtree-console", "bin")]
    else:
        bases = [Path.home() / ".cache" / "ddtree-console" / "bin"]
    note = ""
    for base in bases:
        try:
            os.umask(0o022)
            where = unpack(base, name, files)
        except OSError as error:
            why = DISK.get(error.errno or 0) or error.strerror or str(error)
            note = f"{base}: {why}"
            continue
        version = platform.python_version()
        return {"installed": name, "where": str(where), "python": version, "uid": os.geteuid(), "note": note}
    raise Refused(f"cannot install the host code: {note}", "make room, or make it writable")


def main(data: bytes, name: str, roots: str) -> None:
    """One line on stdout."""
    try:
        answer: dict[str, object] = install(data, name, roots)
    except Refused as refused:
        answer = {"error": str(refused), "next": refused.next_step}
    except (OSError, ValueError) as error:
        answer = {"error": f"cannot install the host code: {error}", "next": "see `check`"}
    sys.stdout.write(json.dumps(answer) + "\n")
