"""What a service's own interpreter runs on a host without being installed there: DDTree's kernels, as one archive."""

from __future__ import annotations

import hashlib
import importlib.util
from functools import cache
from pathlib import Path

from ddtree_console.transport.archive import Archive, pack

PACKAGE = "ddtree_kernels"
LEFT_OUT = ("models", "decode", "serve", "tiny", "bench")
"""Parts of the package that only the wrapper and the benchmark need."""


class NotInstalled(Exception):
    """The kernels are not beside this console."""


@cache
def kernels() -> Archive:
    """The package's Python files, without the parts that a check does not need. Imports nothing of it. NotInstalled."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise NotInstalled(f"{PACKAGE} is not installed beside the console")
    root = Path(spec.origin).parent
    files = {
        f"{PACKAGE}/{path.relative_to(root).as_posix()}": path.read_bytes()
        for path in root.rglob("*.py")
        if path.relative_to(root).parts[0] not in LEFT_OUT
    }
    data = pack(files)
    return Archive(hashlib.sha256(data).hexdigest()[:16], data, dict(sorted(files.items())))
