"""What is installed: distributions on an import path, their versions, pins, entry points and own RECORD."""

from __future__ import annotations

import base64
import configparser
import csv
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

PACKAGES = (
    "sglang", "torch", "triton", "sglang-kernel", "sgl-kernel", "flashinfer-python", "flashinfer-cubin",
    "flashinfer-jit-cache", "transformers", "ddtree-console",
)  # fmt: skip
PLUGIN_GROUP = "sglang.srt.plugins"
HASHED = (".py", ".json", ".toml")
"""endings whose content is compared; of the rest (libraries of gigabytes) only the size."""


@dataclass(frozen=True)
class Dist:
    """One installed distribution. name: normalised. folder: its .dist-info or .egg-info. base: what RECORD is under."""

    name: str
    version: str
    folder: str
    base: str


def normalise(name: str) -> str:
    """A distribution's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(path: Sequence[str]) -> dict[str, Dist]:
    """name -> distribution; the first on the path wins, as in importlib.metadata."""
    found: dict[str, Dist] = {}
    for base in path:
        try:
            names = sorted(os.listdir(base))  # noqa: PTH208 - names only: pathlib makes an object of each of thousands
        except OSError:
            continue
        for entry in names:
            stem, dot, end = entry.rpartition(".")
            if not dot or end not in ("dist-info", "egg-info"):
                continue
            name, _, version = stem.partition("-")
            key = normalise(name)
            if key in found:
                continue
            folder = Path(base, entry)
            if key in PACKAGES:  # the folder's name is enough for the hundreds of others
                version = _field(folder, "Version") or version
            found[key] = Dist(key, version, str(folder), base)
    return found


def _metadata(folder: Path) -> str:
    for name in ("METADATA", "PKG-INFO"):
        try:
            return (folder / name).read_text("utf-8", "replace")
        except OSError:
            continue
    return ""


def _field(folder: Path, key: str) -> str:
    for line in _metadata(folder).splitlines():
        if not line:
            return ""
        if line.startswith(f"{key}: "):
            return line.partition(": ")[2].strip()
    return ""


def pins(dist: Dist) -> dict[str, str]:
    """package -> what the distribution's metadata asks for, of the packages that matter here.

    A requirement of an extra counts where no plain one is there (0.4.6 keeps them in `srt`); other markers are passed
    over.
    """
    plain: dict[str, str] = {}
    extra: dict[str, str] = {}
    for line in _metadata(Path(dist.folder)).splitlines():
        if not line.startswith("Requires-Dist: "):
            continue
        wanted, _, marker = line[len("Requires-Dist: ") :].partition(";")
        match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^)]*)\)?\s*$", wanted)
        if match is None:
            continue
        name, spec = normalise(match.group(1)), match.group(2).replace(" ", "")
        if name not in PACKAGES or not spec:
            continue
        if not marker.strip():
            plain[name] = spec
        elif re.search(r"extra\s*==\s*['\"](srt|runtime-common|all)['\"]", marker):
            extra.setdefault(name, spec)
    return {**extra, **plain}


def entry_points(found: dict[str, Dist], allowed: str) -> Iterator[tuple[str, str, Dist]]:
    """(name, module, distribution) of each plug-in that the engine loads; allowed: SGLANG_PLUGINS, '' for all."""
    wanted = {word.strip() for word in allowed.split(",") if word.strip()}
    for dist in found.values():
        path = Path(dist.folder, "entry_points.txt")
        if not path.is_file():
            continue
        parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        try:
            parser.read_string(path.read_text("utf-8", "replace"))
            rows = parser.items(PLUGIN_GROUP) if parser.has_section(PLUGIN_GROUP) else []
        except (OSError, configparser.Error):
            continue
        for name, value in rows:
            if not wanted or name in wanted:
                yield name, value.partition(":")[0].partition("[")[0].strip(), dist


def editable_of(dist: Dist) -> Path | None:
    """The source folder of an editable install, None for an ordinary one."""
    try:
        raw = json.loads(Path(dist.folder, "direct_url.json").read_text("utf-8"))
        url = str(raw["url"]) if raw["dir_info"].get("editable") else ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Path(unquote(url[len("file://") :])).resolve() if url.startswith("file://") else None


def _rows(dist: Dist) -> list[tuple[str, str, str]]:
    """(path, hash, size) of the files that RECORD names as this distribution's own. OSError, csv.Error."""
    text = Path(dist.folder, "RECORD").read_text("utf-8", "replace")
    rows = []
    for row in csv.reader(text.splitlines()):
        if len(row) < 3 or not row[0] or row[0].startswith(("/", "..")) or "__pycache__" in row[0]:
            continue
        if ".dist-info/" not in row[0] and not row[0].endswith((".pth", "_finder.py")):
            rows.append((f"{dist.base}/{row[0]}", row[1], row[2]))
    return rows


def compare(dist: Dist, thorough: bool) -> tuple[list[str], str]:
    """(files that differ from the distribution's RECORD, why that is not known or '').

    A file that RECORD names and is missing differs. thorough: all Python is hashed; else only what was written after
    the installation; libraries are compared by size.
    """
    try:
        rows = _rows(dist)
        installed_at = Path(dist.folder, "RECORD").stat().st_mtime
    except (OSError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        return [], f"changes of {dist.name} are not known, because it has no RECORD to compare with ({why})"
    if not rows:
        why = "it is an editable install, whose RECORD does not name its files"
        return [], f"changes of {dist.name} are not known, because {why}"
    since = 0.0 if thorough else installed_at + 1.0
    told = ((path, _differs(path, digest, size, since)) for path, digest, size in rows)
    return [f"{path} ({said})" for path, said in told if said], ""


def _differs(path: str, digest: str, size: str, since: float) -> str:
    try:
        about = os.stat(path)  # noqa: PTH116 - thousands of files: an object for each costs more than the call
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return error.strerror or "cannot be read"
    if size.isdigit() and about.st_size != int(size):
        return "other size"
    kind, _, wanted = digest.partition("=")
    if kind != "sha256" or not path.endswith(HASHED) or about.st_mtime < since:
        return ""
    try:
        made = hashlib.sha256(Path(path).read_bytes()).digest()
    except OSError as error:
        return error.strerror or "cannot be read"
    return "" if base64.urlsafe_b64encode(made).rstrip(b"=").decode() == wanted.rstrip("=") else "other content"


def fingerprint(dist: Dist) -> str:
    """Changes whenever a file that RECORD names does: a hash over path, size and time of each; '' without a RECORD."""
    total = hashlib.sha256()
    try:
        rows = _rows(dist)
    except (OSError, csv.Error):
        return ""
    for path, digest, _ in rows:
        try:
            about = os.stat(path)  # noqa: PTH116 - as above
            total.update(f"{path}\0{digest}\0{about.st_size}\0{about.st_mtime_ns}\n".encode("utf-8", "replace"))
        except OSError:
            total.update(f"{path}\0-\n".encode("utf-8", "replace"))
    return total.hexdigest()
