"""Locks of just-in-time compilers, and who holds them.

Two kinds. torch's FileBaton: a file named `lock` whose existence is the lock; its maker keeps it open while it builds,
and a killed maker leaves it for ever. flock (flashinfer, tvm, inductor): the file stays, the lock is in /proc/locks and
ends with its holder.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Iterator
from pathlib import Path

from ddtree_console.domain.stalls import Lock
from ddtree_console.hostside import procfs
from ddtree_console.hostside.roots import Roots

DEEP, MOST = 5, 4000
"""levels below a cache folder and entries looked at."""


def environment(roots: Roots, pid: int) -> dict[str, str]:
    """The variables a process was started with, {} where they cannot be read."""
    raw = procfs.read(Path(roots.proc, str(pid), "environ")) or b""
    pairs = (part.decode("utf-8", "surrogateescape").partition("=") for part in raw.split(b"\0") if part)
    return {name: value for name, _, value in pairs}


def folders(roots: Roots, pid: int) -> list[Path]:
    """Where the process's compilers keep their builds."""
    env = environment(roots, pid)
    home = env.get("HOME", "")
    uid = procfs.uid(roots, pid)
    if not home and uid is not None:
        try:
            home = pwd.getpwuid(uid).pw_dir
        except KeyError:
            home = ""
    cache = env.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    named = [env.get("TORCH_EXTENSIONS_DIR"), env.get("TRITON_CACHE_DIR"), env.get("SGLANG_DG_CACHE_DIR")]
    if cache:
        named += [f"{cache}/{name}" for name in ("torch_extensions", "tvm-ffi", "deep_gemm", "vllm")]
    base = env.get("FLASHINFER_WORKSPACE_BASE") or home
    if base:
        named.append(f"{base}/.cache/flashinfer")
    if home:
        named.append(f"{home}/.triton/cache")
    return [Path(name) for name in dict.fromkeys(named) if name and name.startswith("/")]


def lock_files(top: Path) -> Iterator[Path]:
    """Files named lock or *.lock, at most DEEP levels and MOST entries."""
    queue, left = [(top, 0)], MOST
    while queue and left > 0:
        folder, level = queue.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    left -= 1
                    if entry.name == "lock" or entry.name.endswith(".lock"):
                        yield Path(entry.path)
                    elif level < DEEP and entry.is_dir(follow_symlinks=False):
                        queue.append((Path(entry.path), level + 1))
                    if left <= 0:
                        return
        except OSError:
            continue


def flocked(roots: Roots) -> dict[int, int]:
    """inode -> pid of who holds a lock on it; waiters are left out."""
    held: dict[int, int] = {}
    for line in (procfs.read(Path(roots.proc, "locks")) or b"").splitlines():
        words = line.split()
        if len(words) < 6 or words[1] == b"->":
            continue
        pid, inode = words[4], words[5].rpartition(b":")[2]
        if pid.lstrip(b"-").isdigit() and inode.isdigit():
            held.setdefault(int(inode), int(pid))
    return held


def opened_by(roots: Roots, path: Path, pids: Iterable[int]) -> int:
    """The first of those processes that has the file open, 0 for none."""
    try:
        wanted = path.stat()
    except OSError:
        return 0
    for pid in pids:
        try:
            with os.scandir(Path(roots.proc, str(pid), "fd")) as entries:
                for entry in entries:
                    try:
                        seen = entry.stat()
                    except OSError:
                        continue
                    if (seen.st_ino, seen.st_dev) == (wanted.st_ino, wanted.st_dev):
                        return pid
        except OSError:
            continue
    return 0


def every_pid(roots: Roots) -> list[int]:
    """All processes of the host."""
    try:
        return [int(path.name) for path in Path(roots.proc).iterdir() if path.name.isdigit()]
    except OSError:
        return []


def _written_pid(path: Path) -> int:
    """The process that a lock file names, 0 where it names none."""
    try:
        with path.open("rb") as file:
            words = file.read(64).split()
    except OSError:
        return 0
    return int(words[0]) if words and words[0].isdigit() and len(words[0]) < 10 else 0


def find(roots: Roots, pid: int, own: Iterable[int]) -> list[Lock]:
    """Locks below the caches of process `pid` that are held, or that a dead process left. own: pids of its unit."""
    held: dict[int, int] | None = None
    found = []
    for top in folders(roots, pid):
        for path in lock_files(top):
            try:
                inode = path.stat().st_ino
            except OSError:
                continue  # freed meanwhile
            held = flocked(roots) if held is None else held
            if inode in held:
                found.append(Lock(str(path), held[inode], True))
            elif path.name == "lock":
                holder = opened_by(roots, path, own) or opened_by(roots, path, every_pid(roots))
                wrote = _written_pid(path)
                alive = bool(holder) or (wrote > 0 and Path(roots.proc, str(wrote)).exists())
                found.append(Lock(str(path), holder or wrote, alive))
    return found
