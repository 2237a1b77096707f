"""A log line without what stands before its message: time, rank, level, process, container; and its pieces."""

from __future__ import annotations

import re
from typing import NamedTuple

ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])|\x1b")
LINE_LIMIT = 1 << 14
"""characters of a line that are looked at: what decides stands at its beginning."""
_BREAKS = re.compile(r"[\r\n]+")
_GLUED = re.compile(r"(?<=[^\s\[])(?=\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)|(?<=\])(?=\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_RANKS = r"(?:[A-Za-z_]{2,12}\d{1,5})(?: [A-Za-z_]{2,12}\d{1,5}){0,5}"
_SQUARE = re.compile(
    r"\[(?:(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?P<a>[^\]]{0,60})|(?P<b>" + _RANKS + r")"
    r"|[EWIF]\d{3,4} \d\d:\d\d:\d\d[^\]]{0,80}|\s*\d{1,9}\.\d{3,9})\](?:: ?| |(?=\[)|$)"
)
_ROUND = re.compile(
    r"\((?P<a>[A-Za-z][\w.:-]{0,60}?)(?:,? (?:pid|ip|rank|world_size|dp_rank|tp_rank)=[\w.:]+)+\)(?: |$)"
)
_STAMP = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    r"(?: - (?:[\w.]{1,60} - )?[A-Z]{4,8} -(?: [\w.]{1,60} -)?|:| \|)?(?: |$)"
)
_LEVEL = re.compile(
    # uvicorn pads its levels to one width; elsewhere further spaces belong to the message: a frame's indentation
    r"[EWIFV]\d{4} \d\d:\d\d:\d\d\.\d{3,9} +\d+ \S{1,200}:\d+\](?: |$)|"
    r"(?:ERROR: {4}(?! )|INFO: {5}(?! )|WARNING: {2}(?! )|(?:ERROR|WARNING|WARN|INFO|CRITICAL|DEBUG|FATAL)(?:: ?|$| ))"
    r"(?:\d\d-\d\d \d\d:\d\d:\d\d )?(?:\[?[\w./]+\.(?:py|cpp|cc):\d+\]:? ?)?"
)
_PIPE = re.compile(r"[\w.-]{1,40}\s*\| ")
_BEGINS = frozenset("[(EWICDFV0123456789")
"""what the prefixes begin with."""


class Line(NamedTuple):
    """rank: '' where the line names none. message: without prefixes. prefix: what stood before it, '' for nothing."""

    rank: str
    message: str
    prefix: str


def pieces(text: str) -> list[str]:
    """An entry as lines: cut at line breaks, carriage returns, and where a stamp follows other text."""
    if "\x1b" in text:
        text = ANSI.sub("", text)
    if "\r" not in text and "\n" not in text:
        cut = [text]
    else:
        cut = [part for part in _BREAKS.split(text) if part]
        if len(cut) > 4:  # a bar that was drawn many times says no more than its last state
            bars = [i for i, part in enumerate(cut) if "%|" in part and "[20" not in part]
            drop = frozenset(bars[:-1])
            cut = [part for i, part in enumerate(cut) if i not in drop]
    out: list[str] = []
    for part in cut:
        bar = "it/s]" in part or "s/it]" in part or "%|" in part
        at = part.find("[20", 1) if bar or "[20" in part[1:400] else -1
        if at > 0 and (bar or part[at - 1] not in " \t'\"=("):
            out.extend(x[:LINE_LIMIT] for x in _GLUED.split(part[: 16 * LINE_LIMIT]) if x)
        else:
            out.append(part[:LINE_LIMIT])
    return out


def strip(line: str) -> Line:
    """The message of a line without ANSI codes, and its rank."""
    rank, at, end = "", 0, len(line)
    if (
        line[:3] == "[20" and line[11:12] == " " and line[14:15] == ":" and line[20:21] in (" ", "]")
    ):  # most lines: SGLang's own stamp
        close = line.find("]", 20, 90)
        if close > 0:
            rank = line[20:close].strip()
            at = close + 2 if line[close + 1 : close + 2] == " " else close + 1
            if line[at : at + 1] not in _BEGINS:
                return Line(rank, line[at:], line[:at])
    for _ in range(5):
        if at >= end:
            break
        first = line[at]
        if first == "[":
            match = _SQUARE.match(line, at)
            if match is None:
                break
            found = match.group("a") or match.group("b")
            if found and not rank:
                rank = found.strip()
        elif first == "(":
            match = _ROUND.match(line, at)
            if match is None:
                break
            rank = match.group("a")  # of several the innermost: (APIServer pid=1) (Worker_TP1 pid=9)
        elif first in "EWICDFV":
            match = _LEVEL.match(line, at)
            if match is None:
                break
        elif first.isdigit():
            match = _STAMP.match(line, at)
            if match is None:
                break
        else:
            match = _PIPE.match(line, at) if at == 0 and "| " in line[:42] else None
            if match is None:
                break
        at = match.end()
    if at == 0:
        return Line("", line, "")
    return Line(rank, line[at:], line[:at])
