"""Unit files without loss: every byte stays where it is, single settings are found and edited in place.

Reads lines as systemd's config_parse() does: CR, LF, NUL end a line, a backslash at the end goes on, comments inside a
continued value are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_EOL = re.compile(r"\r\n|\n\r|\n|\r|\0")
_BLANK = " \t\n\r"


@dataclass(frozen=True)
class Entry:
    """One assignment. value: joined and stripped. start, end: its lines in the text. places: where each character of
    value stands in the text."""

    section: str
    key: str
    value: str
    start: int
    end: int
    places: tuple[int, ...] = ()


@dataclass(frozen=True)
class Span:
    """A replacement of text[start:end]."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class UnitFile:
    """A parsed unit. text is the whole file, as read; surrogate escapes stand for bytes that are not UTF-8."""

    text: str
    entries: tuple[Entry, ...]
    sections: tuple[tuple[str, int], ...] = ()
    """(name, place behind its last line) of each section header, in order; a name may repeat."""

    def assigned(self, section: str, key: str) -> tuple[Entry, ...]:
        """The assignments that count: those behind the last reset (`Key=`)."""
        found: list[Entry] = []
        for entry in self.entries:
            if entry.section == section and entry.key == key:
                found = [] if not entry.value else [*found, entry]
        return tuple(found)

    def values(self, section: str, key: str) -> tuple[str, ...]:
        """The effective values of a list setting."""
        return tuple(entry.value for entry in self.assigned(section, key))

    def get(self, section: str, key: str) -> str | None:
        """The effective value of a single setting: the last one; None when unset or reset."""
        values = self.values(section, key)
        return values[-1] if values else None

    def with_spans(self, spans: Iterable[Span]) -> UnitFile:
        """The unit after these replacements; they must not overlap."""
        text = self.text
        for span in sorted(spans, key=lambda s: (s.start, s.end), reverse=True):
            text = text[: span.start] + span.text + text[span.end :]
        return parse(text)

    def eol(self) -> str:
        """The line end to write: that of the first line, LF where that is odd."""
        match = _EOL.search(self.text)
        return "\r\n" if match and match.group() == "\r\n" else "\n"

    def insertion(self, section: str, line: str, after: Entry | None = None) -> Span:
        """`line` as a new line behind `after`, else at the end of the section's first part (made where missing)."""
        eol = self.eol()
        if after is not None:
            at = after.end
        else:
            ends = [end for name, end in self.sections if name == section]
            if not ends:
                blank = "" if not self.text else eol
                return Span(
                    len(self.text), len(self.text), f"{self._gap(len(self.text))}{blank}[{section}]{eol}{line}{eol}"
                )
            at = ends[0]
        return Span(at, at, self._gap(at) + line + eol)

    def _gap(self, at: int) -> str:
        """What must stand at `at` so that a new line begins there: the file may end in mid-line or in mid-value."""
        before = self.text[:at]
        broken = self.eol() if before and before[-1] not in "\r\n\0" else ""
        return broken + (self.eol() if _open(before) else "")

    def with_setting(self, section: str, key: str, values: Sequence[str]) -> UnitFile:
        """The unit where `key` has exactly these values (() removes it); untouched when it has them already."""
        if self.values(section, key) == tuple(values):
            return self
        old = [entry for entry in self.entries if entry.section == section and entry.key == key]
        lines = "".join(f"{key}={value}{self.eol()}" for value in values)
        if not old:
            return self.with_spans([self.insertion(section, lines.rstrip("\r\n"))]) if values else self
        spans = [Span(old[0].start, old[0].end, lines)] + [Span(e.start, e.end, "") for e in old[1:]]
        return self.with_spans(spans)


def _lines(text: str) -> list[tuple[int, int, int]]:
    """(start, end without line end, end) of each physical line."""
    found, at = [], 0
    for match in _EOL.finditer(text):
        found.append((at, match.start(), match.end()))
        at = match.end()
    if at < len(text):
        found.append((at, len(text), len(text)))
    return found


def _continues(line: str) -> bool:
    """Whether the line ends in a backslash that is not itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _is_comment(line: str) -> bool:
    return line.lstrip(_BLANK)[:1] in ("#", ";") and bool(line.strip(_BLANK))


def _open(text: str) -> bool:
    """Whether a value goes on behind the end of the text; an empty line ends it as the file's end would."""
    for start, stop, _ in reversed(_lines(text)):
        if not _is_comment(text[start:stop]):
            return _continues(text[start:stop])
    return False


def _valid(line: str) -> bool:
    """systemd ignores a line that is not UTF-8."""
    return not any("\ud800" <= char <= "\udfff" for char in line)


def _logical(text: str) -> list[tuple[str, list[int], int, int]]:
    """(line, places, start, end) of each logical line, continuations joined and comments left out."""
    found: list[tuple[str, list[int], int, int]] = []
    line, start, end, going = "", 0, 0, False
    places: list[int] = []
    for begin, stop, end in _lines(text):
        part = text[begin:stop]
        if _is_comment(part):
            continue
        if begin == 0 and part.startswith("\ufeff"):
            begin, part = 1, part[1:]
        if not going:
            line, places, start = "", [], begin
        line += part
        places += range(begin, stop)
        going = _continues(line)
        if going:
            line = line[:-1] + " "
            continue
        found.append((line, places, start, end))
    if going:
        found.append((line, places, start, end))
    return found


def parse(text: str) -> UnitFile:
    """The unit in that text. Never raises: what systemd would ignore stays in the text and is no entry."""
    section = ""
    entries: list[Entry] = []
    sections: list[tuple[str, int]] = []
    for line, places, start, end in _logical(text):
        stripped = line.strip(_BLANK)
        if not stripped or not _valid(stripped):
            continue
        if stripped[0] == "[":
            if stripped[-1] == "]":
                section = stripped[1:-1]
                sections.append((section, end))
            continue
        head, equals, tail = line.partition("=")
        if not equals or not section:
            continue
        value = tail.strip(_BLANK)
        at = len(head) + 1 + (len(tail) - len(tail.lstrip(_BLANK)))
        entries.append(Entry(section, head.strip(_BLANK), value, start, end, tuple(places[at : at + len(value)])))
        sections[-1] = (section, end)
    return UnitFile(text, tuple(entries), tuple(sections))


DROP_IN = "# ddtree-console drop-in"
_MARK = re.compile("^" + re.escape(DROP_IN) + r"(?: \+([12]))?: (.*)\n", re.MULTILINE)


def join_drop_ins(text: str, drop_ins: Iterable[tuple[str, str]]) -> str:
    """Unit and drop-ins as one text with the same meaning; each (path, text) behind a comment that names its path."""
    for path, extra in drop_ins:
        added = (0 if text.endswith("\n") else 1) + _open(text)
        count = f" +{added}" if added else ""
        text += "\n" * added + f"{DROP_IN}{count}: {path.replace(chr(10), ' ')}\n" + extra
    return text


def split_drop_ins(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """(unit alone, its (path, text) drop-ins) of a joined text: the inverse of join_drop_ins."""
    marks = list(_MARK.finditer(text))
    ends = [mark.start() - int(mark.group(1) or 0) for mark in marks] + [len(text)]
    parts = [(mark.group(2), text[mark.end() : end]) for mark, end in zip(marks, ends[1:])]
    return text[: ends[0]], tuple(parts)
