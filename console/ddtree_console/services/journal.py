"""Ring buffers of journal lines, one a unit; entries stay JSON until somebody looks, so that a flood costs little."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddtree_console.domain.journal import parse_entry
from ddtree_console.services.api import JournalLine

KEEP_LINES, KEEP_BYTES = 5000, 4 << 20
LONG = 64 << 10
"""An entry above this is parsed at once and its text cut, or one line could fill the ring."""
CUT = 16 << 10
_ABOUT, _FROM = b'"UNIT":"', b'"_SYSTEMD_UNIT":"'


def _field(raw: bytes, key: bytes) -> str | None:
    start = raw.find(key)
    if start < 0:
        return None
    start += len(key)
    return raw[start : raw.find(b'"', start)].decode("utf-8", "replace")


def unit_of(raw: bytes) -> str:
    """The unit an entry is of, without parsing it where it has journalctl's own compact form.

    The pattern cannot stand inside a value: there its quotes are escaped. systemd's own lines about a unit say UNIT.
    """
    found = _field(raw, _ABOUT) or _field(raw, _FROM)
    if found is not None:
        return found
    try:
        entry = json.loads(raw)
    except ValueError:
        return ""
    value = (entry.get("UNIT") or entry.get("_SYSTEMD_UNIT")) if isinstance(entry, dict) else ""
    return str(value[0] if isinstance(value, list) and value else value or "")


def line_of(raw: bytes, seq: int) -> JournalLine | None:
    """The entry as a line; None for bytes that are no entry."""
    entry = parse_entry(raw)
    if entry is None:
        return None
    return JournalLine(seq, entry.when, entry.unit, entry.text, entry.priority, entry.invocation)


@dataclass
class Ring:
    """Newest lines of one unit. dropped: lines that came and are no longer kept."""

    lines: deque[tuple[int, bytes | JournalLine]] = field(default_factory=deque)
    size: int = 0
    seq: int = 0
    dropped: int = 0

    def add(self, raw: bytes) -> None:
        """One more entry."""
        kept: bytes | JournalLine = raw
        if len(raw) > LONG and (line := line_of(raw, self.seq)) is not None:
            more = len(line.text) - CUT
            text = f"{line.text[:CUT]} … {more:,} more characters" if more > 0 else line.text
            kept = JournalLine(line.seq, line.when, line.unit, text, line.priority, line.invocation)
        self._append(kept)

    def mark(self, unit: str, why: str) -> None:
        """A marker of missing entries."""
        self._append(JournalLine(self.seq, 0.0, unit, "", gap=why))

    def _append(self, kept: bytes | JournalLine) -> None:
        self.lines.append((self.seq, kept))
        self.seq += 1
        self.size += _size(kept)
        while len(self.lines) > KEEP_LINES or (self.size > KEEP_BYTES and len(self.lines) > 1):
            _, old = self.lines.popleft()
            self.size -= _size(old)
            self.dropped += 1

    def read(self, after: int, limit: int) -> list[JournalLine]:
        """Lines with seq > after, oldest first, at most the newest `limit`; parsed here and kept so."""
        if not self.lines or limit <= 0:
            return []
        first = self.lines[0][0]
        start = max(after + 1 - first, len(self.lines) - limit, 0)
        out = []
        for i in range(start, len(self.lines)):
            seq, kept = self.lines[i]
            line = line_of(kept, seq) if isinstance(kept, bytes) else kept
            if line is not None:
                out.append(line)
        return out

    def tail(self, limit: int) -> list[JournalLine]:
        """The newest `limit` lines."""
        return self.read(-1, limit)


def _size(kept: bytes | JournalLine) -> int:
    return len(kept) if isinstance(kept, bytes) else len(kept.text) + 100


class JournalFeed:
    """The follower's stream of one host, split by unit; knows where to resume."""

    def __init__(self, units: Iterable[str], tail: int = 500) -> None:
        self.rings: dict[str, Ring] = {unit: Ring() for unit in units}
        self.tail = tail
        self._last: bytes = b""

    def request(self) -> Mapping[str, Any]:
        """First line for the follower: from the last entry seen, else the newest `tail` ones."""
        return {"units": list(self.rings), "cursor": self.cursor(), "tail": self.tail, "invocation": None}

    def cursor(self) -> str | None:
        """Cursor of the last entry seen, None before any."""
        try:
            value = json.loads(self._last).get("__CURSOR") if self._last else None
        except (ValueError, AttributeError):
            return None
        return value if isinstance(value, str) else None

    def feed(self, raw: bytes) -> None:
        """One line of the follower: an entry, or a word of the host code about a gap or an error."""
        if raw.startswith(b'{"_ddtree"'):
            self._word(raw)
            return
        ring = self.rings.get(unit_of(raw))
        if ring is None:
            return
        if self._last and raw == self._last:
            return  # the entry at the cursor, sent again as proof that nothing is missing
        self._last = raw
        ring.add(raw)

    def _word(self, raw: bytes) -> None:
        try:
            word = json.loads(raw)
        except ValueError:
            return
        text = str(word.get("why") or word.get("text") or "entries are missing")
        if word.get("_ddtree") == "gap":
            self.mark(text)
        elif word.get("_ddtree") == "error":
            self.mark(f"journal: {text}")

    def mark(self, why: str) -> None:
        """A gap in every unit's lines."""
        for unit, ring in self.rings.items():
            ring.mark(unit, why)

    def read(self, unit: str, after: int, limit: int) -> Sequence[JournalLine]:
        """As services.api.Console.journal."""
        ring = self.rings.get(unit)
        return ring.read(after, limit) if ring is not None else ()
