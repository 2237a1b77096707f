"""Locks that a build of a kernel left behind: the next start waits for ever on one, without a word.

torch's own build lock is the mere existence of a file `lock`, made by whoever compiles and removed at the end; a
process that was killed leaves it. Locks of other caches are flocks, which the kernel frees: their files mean nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from ddtree_console.hostside import procfs
from ddtree_console.hostside.check_finding import Finding
from ddtree_console.hostside.roots import Roots

FRESH_S = 600.0
DEEPEST, MOST = 5, 5000


def folders(env: Mapping[str, str]) -> list[Path]:
    """Where extensions are built for this environment."""
    home = Path(env.get("HOME") or os.environ.get("HOME") or "/")
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    found = [Path(env.get("TORCH_EXTENSIONS_DIR") or cache / "torch_extensions")]
    found.append(Path(env.get("FLASHINFER_WORKSPACE_BASE") or home, ".cache/flashinfer"))
    return list(dict.fromkeys(found))


def locks(folder: Path) -> Iterator[Path]:
    """Files named `lock` below it, not for ever deep or many."""
    seen = 0
    for at, inside, files in os.walk(folder):
        if len(Path(at).relative_to(folder).parts) >= DEEPEST:
            inside.clear()
        seen += len(files) + 1
        if "lock" in files:
            yield Path(at, "lock")
        if seen > MOST:
            return


def holder(roots: Roots, path: Path) -> int:
    """A process that has the file open, 0 for none that this user may see."""
    for entry in Path(roots.proc).iterdir():
        if not entry.name.isdigit():
            continue
        try:
            for link in (entry / "fd").iterdir():
                if link.readlink() == path:
                    return int(entry.name)
        except OSError:
            continue
    return 0


def check(roots: Roots, env: Mapping[str, str]) -> Iterator[Finding]:
    """One finding; as the unit's user."""
    stale: list[str] = []
    busy: list[str] = []
    booted = time.time() - procfs.boottime()
    for folder in folders(env):
        for path in locks(folder):
            try:
                made = path.stat().st_mtime
            except OSError:
                continue
            pid = holder(roots, path)
            if pid:
                busy.append(f"{path} (pid {pid})")
            elif made < booted or time.time() - made > FRESH_S:
                stale.append(str(path))
            else:
                busy.append(str(path))
    if stale:
        many = f" and {len(stale) - 3} more" if len(stale) > 3 else ""
        why = f"left by a build that was killed: {', '.join(stale[:3])}{many}; a start would wait on it for ever"
        yield Finding("jit locks", "fail", why, f"rm {' '.join(stale[:3])}")
    elif busy:
        yield Finding("jit locks", "warn", f"a build runs: {', '.join(busy[:3])}", "wait until it ends")
    else:
        yield Finding("jit locks", "ok", "none left behind")
