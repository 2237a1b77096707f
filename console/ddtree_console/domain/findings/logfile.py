"""Log files of any shape as entries: plain, journalctl's short forms in any language, JSON, export. Pure.

What stands before the message decides each line alone, so a file may mix forms and may begin in the middle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ddtree_console.domain.journal import parse_entry

_HEAD = re.compile(
    r"(?:(?P<mon>[^\W\d]{1,12}\.?) {1,2}(?P<day>\d{1,2})(?: \d{4})?,? (?P<clock>\d\d:\d\d:\d\d(?:[.,]\d+)?)"
    r"|(?:[^\W\d]{2,5}\.? )?(?P<date>\d{4}-\d\d-\d\d)[T ](?P<clock2>\d\d:\d\d:\d\d(?:[.,]\d+)?)"
    r"(?:Z|[+-]\d\d:?\d\d| [A-Z]{2,5})?"
    r"|(?P<unix>\d{9,11}\.\d{3,9})|\[ *(?P<mono>\d{1,9}\.\d{3,9})\])"
    r" (?P<host>[\w.-]+) (?P<ident>[^\s\[\]:]{1,64})(?:\[(?P<pid>\d{1,9})\])?: ?"
)
# Recorders write the seconds since the start before each line, as `ts -s '%.s'` and the recordings of this project do.
_ELAPSED = re.compile(r" {0,7}(\d{1,7}\.\d{3,6}) (?=\S|$| )")
_MARKER = re.compile(r"-- (?:.*) --$|-- (?:Boot|Reboot|Logs|Journal|No entries)\b|-- cursor: ")
_STAMP = re.compile(r"\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)")
_MONTHS = {
    m: i for i, m in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"])
}
SAMPLE = 400
MANAGERS = {"systemd": "systemd", "kernel": "kernel"}


class Entry(NamedTuple):
    """One line of a log file as the engine takes it. t: seconds, None where the line has none."""

    text: str
    t: float | None = None
    pid: int | None = None
    source: str = ""
    head: int = 0
    """characters before the message."""


def _clock(text: str) -> float:
    hours, minutes, seconds = text.replace(",", ".").split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


class Reader:
    """Lines of a file to entries. Remembers the process of the line before, for messages of several lines."""

    def __init__(self) -> None:
        self._last = Entry("")
        self._months: dict[str, int] = {}
        self._export: dict[str, str] = {}
        self._headed = False
        self._elapsed: bool | None = None
        """whether lines begin with seconds since the start; the first line tells."""

    def feed(self, line: str) -> Iterable[Entry]:
        """The entries that this line completes: one for most lines, none for markers and halves of an export."""
        if self._elapsed is not False:
            seconds = _ELAPSED.match(line)
            if self._elapsed is None and line.strip():
                self._elapsed = seconds is not None
            if seconds is not None and self._elapsed:
                return (Entry(line[seconds.end() :], float(seconds.group(1)), head=seconds.end()),)
        if line[6:7] == " " and line[9:10] == ":" == line[12:13] and line[15:16] == " " and not self._export:
            found = self._short(line)
            if found is not None:
                return (found,)
        return self._feed(line)

    def _short(self, line: str) -> Entry | None:
        """journalctl's own short form, by columns."""
        colon = line.find(": ", 16, 160)
        host, space, ident = line[16:colon].partition(" ") if colon > 0 else ("", "", "")
        month = _MONTHS.get(line[:3].lower(), -1)
        if not space or not ident or " " in ident or not host or month < 0:
            return None
        pid: int | None = None
        if ident[-1] == "]":
            ident, _, number = ident[:-1].partition("[")
            if not (number.isascii() and number.isdigit()) or len(number) > 9:
                return None
            pid = int(number)
        try:
            day = int(line[4:6])
            seconds = int(line[7:9]) * 3600 + int(line[10:12]) * 60 + int(line[13:15])
        except ValueError:
            return None
        self._headed = True
        self._last = Entry(
            line[colon + 2 :], float((month * 31 + day) * 86400 + seconds), pid, MANAGERS.get(ident, ""), colon + 2
        )
        return self._last

    def _feed(self, line: str) -> Iterator[Entry]:
        if line.startswith("{") and line.endswith("}") and ('"MESSAGE"' in line or '"__CURSOR"' in line):
            found = self._json(line)
            if found is not None:
                yield found
                return
        if self._export or line.startswith("__CURSOR="):
            yield from self._exported(line)
            return
        head = _HEAD.match(line)
        if head is None:
            if line.startswith("-- ") and _MARKER.match(line):
                return
            if self._headed and self._last.head and line.startswith("    "):
                blank = line[: self._last.head]
                text = line[self._last.head :] if not blank.strip() else line
                yield self._last._replace(text=text)
            else:
                yield Entry(line)
            return
        self._headed = True
        pid, ident = head.group("pid"), head.group("ident")
        source = MANAGERS.get(ident, "")
        self._last = Entry(line[head.end() :], self._time(head), int(pid) if pid else None, source, head.end())
        yield self._last

    def end(self) -> Iterator[Entry]:
        """What an export without its last empty line still holds."""
        if self._export:
            yield from self._exported("")

    def _time(self, head: re.Match[str]) -> float:
        if head.group("unix") or head.group("mono"):
            return float(head.group("unix") or head.group("mono"))
        if head.group("date"):
            year, month, day = (int(x) for x in head.group("date").split("-"))
            return ((year * 12 + month) * 31 + day) * 86400 + _clock(head.group("clock2"))
        name = head.group("mon").lower().rstrip(".")
        month = _MONTHS.get(name[:3], -1)
        if month < 0:  # another language: months count in the order in which they appear
            if len(self._months) > 64:
                self._months.clear()
            month = self._months.setdefault(name, len(self._months))
        return (month * 31 + int(head.group("day"))) * 86400 + _clock(head.group("clock"))

    def _json(self, line: str) -> Entry | None:
        entry = parse_entry(line.encode("utf-8", "replace"))
        if entry is None:
            return None
        source = MANAGERS.get(entry.ident, "") if entry.pid in (0, 1) or entry.ident == "kernel" else ""
        return Entry(entry.text, entry.when or None, entry.pid or None, source)

    def _exported(self, line: str) -> Iterator[Entry]:
        if line:
            name, equals, value = line.partition("=")
            if (equals and name.isupper()) or name.startswith("_"):
                if len(self._export) < 200:
                    self._export[name] = value
            elif "MESSAGE" in self._export and len(self._export["MESSAGE"]) < 1 << 16:
                self._export["MESSAGE"] += "\n" + line  # a binary field shows as several lines
            elif line == "MESSAGE":
                self._export["MESSAGE"] = ""
            return
        fields, self._export = self._export, {}
        if "MESSAGE" not in fields:
            return
        when, pid = fields.get("__REALTIME_TIMESTAMP", ""), fields.get("_PID", "")
        ident = fields.get("SYSLOG_IDENTIFIER", "")
        yield Entry(
            fields["MESSAGE"],
            int(when) / 1e6 if when.isascii() and when.isdigit() and len(when) < 20 else None,
            int(pid) if pid.isascii() and pid.isdigit() and len(pid) < 10 else None,
            MANAGERS.get(ident, ""),
        )


def newest_first(lines: Iterable[str]) -> bool:
    """Whether the first lines of a file run backwards: by the journal's times, else by those of the messages."""
    reader, times, stamps = Reader(), list[float](), list[str]()
    for i, line in enumerate(lines):
        if i >= SAMPLE:
            break
        for entry in reader.feed(line):
            if entry.t is not None:
                times.append(entry.t)
            stamp = _STAMP.match(entry.text)
            if stamp is not None:
                stamps.append(stamp.group(1).replace("T", " ").replace(",", "."))
    return _backwards(times) if _moves(times) else _backwards(stamps)


def _moves(values: Sequence[float] | Sequence[str]) -> bool:
    return len(set(values)) > 1


def _backwards(values: Sequence[Any]) -> bool:
    pairs = list(zip(values, values[1:]))
    return bool(sum(a > b for a, b in pairs) > 3 * sum(a < b for a, b in pairs))
