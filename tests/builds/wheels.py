"""Wheels of SGLang's releases: fetched from the package index into a cache folder, their Python unpacked from it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

RELEASES = ("0.4.6", "0.5.5", "0.5.9", "0.5.12", "0.5.15", "0.5.20", "0.5.23")
CACHE = "DDTREE_WHEELS"
"""environment variable: the folder that keeps the wheels between runs; the default is below the temporary folder."""


def folder() -> Path:
    """Where the wheels are kept."""
    return Path(os.environ.get(CACHE) or Path(tempfile.gettempdir(), "ddtree-console-wheels"))


def have(release: str) -> Path | None:
    """The release's wheel in the cache, None where it is not there."""
    found = sorted(folder().glob(f"sglang-{release}-*.whl"))
    return found[0] if found else None


def fetch(release: str, seconds: float = 600.0) -> Path:
    """The release's wheel, downloaded where it is missing (1 to 40 MB). OSError says why there is none."""
    kept = have(release)
    if kept is not None:
        return kept
    folder().mkdir(parents=True, exist_ok=True)
    # the releases from 0.5.12 on are built for one Python each: ask for 3.11, whatever runs this
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
            "--only-binary=:all:", "--python-version=3.11", "--platform=manylinux_2_34_x86_64", "--platform=any",
            "--dest", str(folder()), f"sglang=={release}"]  # fmt: skip
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise OSError(f"sglang {release} was not downloaded within {seconds:g} s") from None
    kept = have(release)
    if kept is None:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise OSError(f"sglang {release} cannot be downloaded: {said[-1] if said else done.returncode}")
    return kept


READ = ("/srt/server_args.py", "/srt/arg_groups/", "/srt/speculative/", "/srt/parser/", "/version.py", ".dist-info/")
"""parts of a wheel in which an inspector looks for flags; the rest only holds choices and takes seconds to unpack."""


def unpack(wheel: Path, where: Path, parts: tuple[str, ...] = ("",)) -> Path:
    """The wheel's Python and metadata, without binaries and other trees; only what lies in one of those parts."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            wanted = name.startswith("sglang") and (name.endswith(".py") or ".dist-info/" in name)
            if wanted and any(part in name for part in parts):
                archive.extract(name, where)
    return where


def digest(wheel: Path) -> str:
    """SHA-256 of the wheel."""
    return hashlib.sha256(wheel.read_bytes()).hexdigest()
