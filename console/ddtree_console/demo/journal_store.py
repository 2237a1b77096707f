"""A journal in memory: entries with real cursors over boots, given out exactly as journald's JSON."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

JSON_THRESHOLD = 4096
LINE_MAX = 48 * 1024
KEEP = 100_000
_CONTROL = {*range(32), *range(0x7F, 0xA0)} - {9, 10}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. realtime and monotonic in microseconds; boot without dashes; fields are shared between entries."""

    seq: int
    boot: str
    realtime: int
    monotonic: int
    message: bytes
    priority: int
    fields: Mapping[str, str]
    line_break: str = ""

    def get(self, name: str) -> str | None:
        """A field's value for matches."""
        if name == "_BOOT_ID":
            return self.boot
        if name == "PRIORITY":
            return str(self.priority)
        if name == "MESSAGE":
            return self.message.decode("utf-8", "surrogateescape")
        return self.fields.get(name)


def json_value(raw: bytes, everything: bool) -> str | list[int] | None:
    """journald's three forms: text, a list of byte numbers when not printable, null when long without --all."""
    if not everything and len(raw) >= JSON_THRESHOLD:
        return None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return list(raw)
    return list(raw) if any(ord(c) in _CONTROL for c in text) else text


class Journal:
    """Append-only, bounded; followers wait on `changed`."""

    def __init__(self, machine: str, host: str) -> None:
        self.machine, self.host, self.boot = machine, host, ""
        self._entries: list[Entry] = []
        self._first = 1
        self._waiters: set[asyncio.Event] = set()
        self._seqnum_id = machine[::-1]

    def append(self, message: bytes, priority: int, fields: Mapping[str, str], line_break: str = "") -> None:
        """One more entry, now."""
        now, mono = time.time_ns() // 1000, time.monotonic_ns() // 1000
        seq = self._first + len(self._entries)
        self._entries.append(Entry(seq, self.boot, now, mono, message, priority, fields, line_break))
        if len(self._entries) > KEEP + KEEP // 10:
            self.vacuum(KEEP)
        for event in self._waiters:
            event.set()

    def vacuum(self, keep: int = 0) -> None:
        """Drops all but the newest `keep` entries; sequence numbers go on."""
        drop = max(0, len(self._entries) - keep)
        del self._entries[:drop]
        self._first += drop

    @property
    def end(self) -> int:
        """The sequence number that the next entry will get."""
        return self._first + len(self._entries)

    def forward(self, start: int) -> Iterator[Entry]:
        """Entries from sequence number `start` (or the oldest kept) on."""
        at = max(0, start - self._first)
        while at < len(self._entries):
            yield self._entries[at]
            at += 1

    def tail(self, count: int, wanted: Callable[[Entry], bool]) -> list[Entry]:
        """The newest `count` entries that are wanted, oldest first."""
        found: list[Entry] = []
        for entry in reversed(self._entries):
            if len(found) >= count:
                break
            if wanted(entry):
                found.append(entry)
        return found[::-1]

    def watch(self) -> asyncio.Event:
        """An event set at each append; give it back with unwatch."""
        event = asyncio.Event()
        self._waiters.add(event)
        return event

    def unwatch(self, event: asyncio.Event) -> None:
        """Ends a watch."""
        self._waiters.discard(event)

    def cursor(self, entry: Entry) -> str:
        """The entry's cursor in journald's form."""
        mix = zlib.crc32(entry.message, entry.seq) | zlib.crc32(entry.message, entry.realtime & 0xFFFFFFFF) << 32
        return (
            f"s={self._seqnum_id};i={entry.seq:x};b={entry.boot};m={entry.monotonic:x};t={entry.realtime:x};x={mix:x}"
        )

    def seek(self, cursor: str) -> int:
        """The sequence number that a cursor names. ValueError for text that is no cursor."""
        parts = dict(part.partition("=")[::2] for part in cursor.split(";"))
        if len(parts.get("s", "")) != 32 or not parts.get("i"):
            raise ValueError("Invalid argument")
        return int(parts["i"], 16)

    def as_json(self, entry: Entry, everything: bool, only: frozenset[str] | None) -> bytes:
        """One line of `-o json`, without its newline."""
        out: dict[str, object] = {
            "__CURSOR": self.cursor(entry),
            "__REALTIME_TIMESTAMP": str(entry.realtime),
            "__MONOTONIC_TIMESTAMP": str(entry.monotonic),
            "_BOOT_ID": entry.boot,
        }
        rest: dict[str, object] = {
            **entry.fields,
            "PRIORITY": str(entry.priority),
            "MESSAGE": json_value(entry.message, everything),
            "_HOSTNAME": self.host,
            "_MACHINE_ID": self.machine,
        }
        if entry.line_break:
            rest["_LINE_BREAK"] = entry.line_break
        out.update((k, v) for k, v in rest.items() if only is None or k in only)
        return json.dumps(out, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogateescape")


class LineSplitter:
    """Cuts a service's output into entries as journald does: at newline, NUL, 48 KiB, end of file."""

    def __init__(self, emit: Callable[[bytes, str], None]) -> None:
        self._emit, self._held = emit, b""

    def feed(self, data: bytes) -> None:
        """More bytes, in any pieces."""
        self._held += data
        start = 0
        while True:
            newline, nul = self._held.find(b"\n", start), self._held.find(b"\0", start)
            cut = min((x for x in (newline, nul) if x >= 0), default=-1)
            limit = len(self._held) if cut < 0 else cut
            while limit - start >= LINE_MAX:
                self._put(self._held[start : start + LINE_MAX], "line-max")
                start += LINE_MAX
            if cut < 0:
                break
            self._put(self._held[start:cut], "nul" if cut == nul else "")
            start = cut + 1
        self._held = self._held[start:]

    def close(self) -> None:
        """The stream ended: what is held becomes an entry of its own."""
        self._put(self._held, "eof")
        self._held = b""

    def _put(self, line: bytes, line_break: str) -> None:
        if line:
            self._emit(line, line_break)
