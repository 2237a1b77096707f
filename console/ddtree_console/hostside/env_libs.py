"""Which file the dynamic linker takes for a library that another one needs: its own search order, without loading it.

RPATH of the one that needs it (and of those that loaded that one), LD_LIBRARY_PATH, RUNPATH, ld.so.cache, the default
folders. What the process has loaded under that name already is taken before any of them: `loaded`.
"""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddtree_console.hostside import env_elf

CACHE = "/etc/ld.so.cache"
_MAGIC = b"glibc-ld.so.cache1.1"
DEFAULT = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


@dataclass(frozen=True)
class Found:
    """A library as it is found. how: loaded | rpath | LD_LIBRARY_PATH | runpath | ld.so.cache | default folder."""

    name: str
    path: str
    how: str


def cache(path: str = CACHE) -> dict[str, str]:
    """soname -> path of ld.so.cache, the entry that the linker would take first; {} where it cannot be read."""
    try:
        data = Path(path).read_bytes()
    except OSError:
        return {}
    start = data.find(_MAGIC)
    if start < 0:
        return {}
    data = data[start:]
    found: dict[str, str] = {}
    try:
        (count,) = struct.unpack_from("<I", data, 20)
        for i in range(count):
            _, key, value = struct.unpack_from("<iII", data, 48 + i * 24)
            name = data[key : data.index(b"\0", key)].decode("utf-8", "surrogateescape")
            where = data[value : data.index(b"\0", value)].decode("utf-8", "surrogateescape")
            if name not in found and usable(where):
                found[name] = where
    except (struct.error, ValueError):
        return found
    return found


def usable(path: str) -> bool:
    """Whether the linker would take that file: it is there, readable, and of this machine's kind."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(20)
    except OSError:
        return False
    machine = {"x86_64": 62, "aarch64": 183}.get(platform.machine())
    return head[:5] == b"\x7fELF\x02" and (machine is None or head[18:20] == machine.to_bytes(2, "little"))


class Linker:
    """The search of one process. env: its environment; workdir: where an empty part of LD_LIBRARY_PATH points."""

    def __init__(self, env: Mapping[str, str], workdir: str = "/", cache_file: str = CACHE) -> None:
        parts = env.get("LD_LIBRARY_PATH", "").replace(";", ":")
        self.folders = tuple(os.path.join(workdir, part) for part in parts.split(":")) if parts else ()  # noqa: PTH118 - as the linker joins
        self._cache_file = cache_file
        self._cache: dict[str, str] | None = None
        self.loaded: dict[str, Found] = {}

    def _cached(self, name: str) -> str:
        if self._cache is None:
            self._cache = cache(self._cache_file)
        return self._cache.get(name, "")

    def find(self, name: str, by: env_elf.Library | None = None, above: Sequence[env_elf.Library] = ()) -> Found | None:
        """The file that `by` gets for `name`; above: what loaded `by`, nearest first (its RPATH counts too)."""
        if name in self.loaded:
            return self.loaded[name]
        if "/" in name:
            return Found(name, name, "path") if usable(name) else None
        chain = [library for library in (by, *above) if library is not None]
        places: list[tuple[str, Sequence[str]]] = []
        if by is None or not by.runpath:
            places.append(("rpath", [_origin(part, lib) for lib in chain for part in lib.rpath]))
        places.append(("LD_LIBRARY_PATH", self.folders))
        places.append(("runpath", [_origin(part, by) for part in by.runpath] if by is not None else ()))
        for how, folders in places:
            for folder in folders:
                path = os.path.join(folder, name)  # noqa: PTH118 - a path as the linker writes it
                if usable(path):
                    return Found(name, path, how)
        if self._cached(name):
            return Found(name, self._cached(name), "ld.so.cache")
        for folder in (f"/lib/{platform.machine()}-linux-gnu", f"/usr/lib/{platform.machine()}-linux-gnu", *DEFAULT):
            if usable(f"{folder}/{name}"):
                return Found(name, f"{folder}/{name}", "default folder")
        return None

    def load(self, path: str, wanted: Sequence[str], depth: int = 3) -> tuple[list[Found], list[tuple[str, str]]]:
        """Loading that library as far as `wanted` (beginnings of names) goes: (found, [(missing name, who needs it)]).

        What is found counts as loaded from then on. OSError, NotElf where the library itself cannot be read.
        """
        found: list[Found] = []
        missing: list[tuple[str, str]] = []
        self._walk(env_elf.read(path), (), wanted, depth, found, missing)
        return found, missing

    def _walk(
        self,
        library: env_elf.Library,
        above: tuple[env_elf.Library, ...],
        wanted: Sequence[str],
        depth: int,
        found: list[Found],
        missing: list[tuple[str, str]],
    ) -> None:
        for name in library.needed:
            if not name.startswith(tuple(wanted)) or name in self.loaded:
                continue
            got = self.find(name, library, above)
            if got is None:
                missing.append((name, library.path))
                continue
            self.loaded[name] = got
            found.append(got)
            if depth > 0:
                try:
                    inner = env_elf.read(got.path)
                except (OSError, env_elf.NotElf):
                    continue
                self.loaded.setdefault(inner.soname or name, got)
                self._walk(inner, (library, *above), wanted, depth - 1, found, missing)


def _origin(part: str, library: env_elf.Library) -> str:
    """A search folder with $ORIGIN put in."""
    here = str(Path(library.path).resolve().parent) if "ORIGIN" in part else ""
    return part.replace("$ORIGIN", here).replace("${ORIGIN}", here)
