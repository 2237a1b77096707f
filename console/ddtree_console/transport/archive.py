"""The host code as one archive with a stable hash: the same installed files give the same bytes anywhere.

An uncompressed tar: zlib's output differs between builds, so compression is left to the way it travels.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from itertools import takewhile
from pathlib import Path
from typing import Any

import ddtree_console

PARTS = ("domain", "hostside")
# 1980-01-01, the earliest time that every archive format can hold.
FIXED_TIME = 315532800

# An older Python parses this file too, and says what is wrong.
MAIN = b"""import sys

if sys.version_info < (3, 9):
    sys.exit("python %d.%d is too old: 3.9 or newer is needed" % sys.version_info[:2])

from ddtree_console.hostside.__main__ import main

sys.exit(main(sys.argv[1:]))
"""


@dataclass(frozen=True, eq=False)
class Archive:
    """hash: first 16 hex digits of the SHA-256 of `data`. files: what it holds, sorted by name."""

    hash: str
    data: bytes
    files: Mapping[str, bytes]


def package_files() -> Iterator[tuple[str, bytes]]:
    """The console's own files that travel: Python and JSON of domain and hostside."""
    root = Path(ddtree_console.__file__).parent
    yield "ddtree_console/__init__.py", (root / "__init__.py").read_bytes()
    for part in PARTS:
        for path in (root / part).rglob("*"):
            if path.suffix in (".py", ".json") and path.is_file():
                yield f"ddtree_console/{path.relative_to(root).as_posix()}", path.read_bytes()


def nvml_files() -> Iterator[tuple[str, bytes]]:
    """nvidia-ml-py's single module, and its licence: the comment that the module opens with."""
    distribution = metadata.distribution("nvidia-ml-py")
    module = bytes(next(file for file in distribution.files or () if file.name == "pynvml.py").read_binary())
    licence = takewhile(lambda line: line.startswith(b"#"), module.splitlines(keepends=True))
    yield "pynvml.py", module
    yield "pynvml.LICENSE", b"".join(licence)


def pack(files: Mapping[str, bytes]) -> bytes:
    """A tar of those files, sorted, with fixed times, owners and modes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(files):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(files[name]), FIXED_TIME, 0o644
            tar.addfile(info, io.BytesIO(files[name]))
    return out.getvalue()


def build(rules: Sequence[Mapping[str, Any]] = ()) -> Archive:
    """The archive of the installed package; `rules` are shipped as rules.json. About 10 ms."""
    files = {"__main__.py": MAIN, "rules.json": json.dumps(list(rules), sort_keys=True).encode()}
    files.update(package_files())
    files.update(nvml_files())
    data = pack(files)
    return Archive(hashlib.sha256(data).hexdigest()[:16], data, dict(sorted(files.items())))
