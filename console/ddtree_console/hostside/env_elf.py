"""What a shared library says of itself: its name, what it needs, where it looks, and for which GPUs it has code.

Reads headers only, through mmap, so that a library of a gigabyte costs a few pages. 64-bit little-endian ELF, as CUDA
libraries are; anything else raises NotElf. Fatbin layout: as cuobjdump and public readers of `.nv_fatbin` have it.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_DYNAMIC, _LOAD = 2, 1
_NEEDED, _STRTAB, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29
_FATBIN = 0xBA55ED50
_PTX, _SASS = 1, 2
MOST_ENTRIES = 20_000
"""of a fatbin: what is behind them is not looked at (a page each; more would be read from a cold disk for seconds)."""


class NotElf(ValueError):
    """It is no library that can be read; the text says why."""


@dataclass(frozen=True)
class Library:
    """rpath is empty where there is a runpath, as the linker has it. sass, ptx: GPU architectures such as 90."""

    path: str
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    sass: frozenset[int] = frozenset()
    ptx: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def _segments(data: mmap.mmap) -> list[_Segment]:
    if data[:4] != b"\x7fELF":
        raise NotElf("no ELF file")
    if data[4:6] != b"\x02\x01":
        raise NotElf("not 64-bit little-endian")
    (at,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    found = []
    for i in range(count):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", data, at + i * size)
        found.append(_Segment(kind, offset, address, length))
    return found


def _text(data: mmap.mmap, at: int) -> str:
    end = data.find(b"\0", at, at + 4096)
    return data[at : end if end >= 0 else at].decode("utf-8", "surrogateescape")


def _dynamic(data: mmap.mmap) -> Iterator[tuple[int, int]]:
    """(tag, value) of each dynamic entry; names as their place in the file."""
    segments = _segments(data)
    table = next((s for s in segments if s.kind == _DYNAMIC), None)
    if table is None:
        return
    entries = []
    for at in range(table.offset, table.offset + table.size - 15, 16):
        tag, value = struct.unpack_from("<qQ", data, at)
        if tag == 0:
            break
        entries.append((tag, value))
    strings = next((value for tag, value in entries if tag == _STRTAB), None)
    if strings is None:
        return
    home = next((s for s in segments if s.kind == _LOAD and s.address <= strings < s.address + s.size), None)
    if home is None:
        raise NotElf("its strings lie outside the file")
    base = strings - home.address + home.offset
    for tag, value in entries:
        if tag in (_NEEDED, _SONAME, _RPATH, _RUNPATH):
            yield tag, base + value


def _section(data: mmap.mmap, name: bytes) -> tuple[int, int]:
    """(offset, size) of a section; (0, 0) without."""
    (at,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    if not at or not count or names >= count:
        return 0, 0
    (strings,) = struct.unpack_from("<Q", data, at + names * size + 24)
    for i in range(count):
        (title,) = struct.unpack_from("<I", data, at + i * size)
        start = strings + title
        if data[start : start + len(name) + 1] == name + b"\0":
            offset, length = struct.unpack_from("<QQ", data, at + i * size + 24)
            return offset, length
    return 0, 0


def _architectures(data: mmap.mmap) -> tuple[frozenset[int], frozenset[int]]:
    """(machine code, PTX) architectures in the fatbins of the library."""
    found: dict[int, set[int]] = {_PTX: set(), _SASS: set()}
    at, length = _section(data, b".nv_fatbin")
    end, seen = at + length, 0
    while at + 16 <= end and seen < MOST_ENTRIES:
        magic, _, header, size = struct.unpack_from("<IHHQ", data, at)
        if magic != _FATBIN:
            at += 8  # fatbins are aligned, and padded between
            seen += 1
            continue
        entry, stop = at + header, min(at + header + size, end)
        while entry + 32 <= stop and seen < MOST_ENTRIES:
            kind, _, head, payload = struct.unpack_from("<HHIQ", data, entry)
            (arch,) = struct.unpack_from("<I", data, entry + 28)
            if kind in found:
                found[kind].add(arch)
            if head + payload <= 0:
                break
            entry += head + payload
            seen += 1
        at += header + size
    return frozenset(found[_SASS]), frozenset(found[_PTX])


def read(path: str, gpus: bool = False) -> Library:
    """The library at that path; gpus: also its GPU architectures. OSError; NotElf."""
    with Path(path).open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise NotElf("empty") from error
        with data:
            try:
                named = [(tag, _text(data, at)) for tag, at in _dynamic(data)]
                sass, ptx = _architectures(data) if gpus else (frozenset(), frozenset())
            except (struct.error, IndexError, OverflowError) as error:
                raise NotElf("cut short") from error

    def folders(wanted: int) -> tuple[str, ...]:
        return tuple(part for tag, text in named if tag == wanted for part in text.split(":") if part)

    runpath = folders(_RUNPATH)
    return Library(
        path=path,
        soname=next((text for tag, text in named if tag == _SONAME), ""),
        needed=tuple(text for tag, text in named if tag == _NEEDED),
        rpath=() if runpath else folders(_RPATH),
        runpath=runpath,
        sass=sass,
        ptx=ptx,
    )
