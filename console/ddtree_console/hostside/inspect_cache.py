"""What was read of a build, kept until a file that it came from changes: by path, time and size."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ddtree_console.hostside import durable
from ddtree_console.hostside.roots import Roots

CODE = Path(__file__).resolve().parents[2].name
"""the host code's own hash, where it is installed: another console may read more."""
MOST = 16


def folder(roots: Roots) -> Path:
    """The user's own cache; where the roots are moved, theirs."""
    if roots.path:
        return Path(roots.var, "cache", "builds")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path(os.environ.get("HOME") or "/nonexistent", ".cache"))
    return Path(base, "ddtree-console", "builds")


def stamps(paths: Iterable[str]) -> list[list[Any]]:
    """[path, time in ns, size] of each file or folder; -1 for one that is not there."""
    out: list[list[Any]] = []
    for path in dict.fromkeys(paths):
        try:
            about = Path(path).stat()
            out.append([path, about.st_mtime_ns, about.st_size])
        except OSError:
            out.append([path, -1, -1])
    return out


def _file(roots: Roots, key: Mapping[str, Any]) -> Path:
    name = hashlib.sha256(json.dumps([CODE, key], sort_keys=True).encode()).hexdigest()[:32]
    return folder(roots) / f"{name}.json"


def load(roots: Roots, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was kept for that key, None where nothing was or a file of it changed."""
    raw = durable.read_json(_file(roots, key))
    kept, value = raw.get("stamps"), raw.get("value")
    if not isinstance(kept, list) or not isinstance(value, dict):
        return None
    paths = [row[0] for row in kept if isinstance(row, list) and row and isinstance(row[0], str)]
    return value if stamps(paths) == kept else None


def keep(roots: Roots, key: Mapping[str, Any], paths: Iterable[str], value: Mapping[str, Any]) -> None:
    """Keeps it, and drops the oldest of too many. A folder that cannot be written is no error: it is read again."""
    file = _file(roots, key)
    with contextlib.suppress(OSError):
        durable.write_json(file, {"stamps": stamps(paths), "value": dict(value)})
        files = sorted(file.parent.glob("*.json"), key=lambda f: f.stat().st_mtime_ns, reverse=True)
        for old in files[MOST:]:
            old.unlink()
