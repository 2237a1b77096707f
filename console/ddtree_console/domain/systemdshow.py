"""Reads `systemctl show`: blocks of KEY=value, one block a unit, in systemd's own order."""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Mapping, Sequence

from ddtree_console.domain.snapshot import UnitState

PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "NRestarts",
    "InvocationID",
    "MainPID",
    "ExecMainCode",
    "ExecMainStatus",
    "StateChangeTimestamp",
    "NeedDaemonReload",
    "DropInPaths",
    "FragmentPath",
    "UnitFileState",
    "MemoryCurrent",
    "CPUUsageNSec",
    "ControlGroup",
)

_STAMP = re.compile(r"(?:[^\W\d]+ )?(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.\d+)? (?:UTC|GMT)", re.ASCII)
_UNIX = re.compile(r"@(\d{1,12})(?:\.\d+)?", re.ASCII)
_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})")
_UNSET = 2**64 - 1


def blocks(text: str) -> list[dict[str, str]]:
    """One mapping a block. A line without `=` continues the value before it; a repeated key keeps its last value."""
    found: list[dict[str, str]] = []
    block: dict[str, str] = {}
    last = ""
    for line in text.split("\n"):
        if not line:
            if block:
                found.append(block)
            block, last = {}, ""
            continue
        key, sep, value = line.partition("=")
        if sep and key.isidentifier():
            block[key], last = value, key
        elif last:
            block[last] += "\n" + line
    if block:
        found.append(block)
    return found


def number(value: str) -> int | None:
    """A count, or None for empty, `[not set]` and systemd's all-ones."""
    if not (value.isascii() and value.isdigit() and len(value) <= 20):
        return None
    count = int(value)
    return None if count >= _UNSET else count


def stamp(value: str) -> float | None:
    """Unix seconds of a timestamp shown in UTC or as `@seconds`; None for empty, n/a or another zone."""
    unix = _UNIX.fullmatch(value)
    if unix:
        return float(unix.group(1))
    match = _STAMP.fullmatch(value)
    if not match:
        return None
    fields = [int(x) for x in match.groups()]
    if not (1 <= fields[1] <= 12 and 1 <= fields[2] <= 31 and fields[0] >= 1970):
        return None
    return float(timegm((fields[0], fields[1], fields[2], fields[3], fields[4], fields[5])))


def paths(value: str) -> tuple[str, ...]:
    r"""Paths of a list property; systemd writes a space inside one as `\x20`."""
    return tuple(_ESCAPE.sub(lambda m: chr(int(m.group(1), 16)), part) for part in value.split(" ") if part)


def unit_state(unit: str, block: Mapping[str, str]) -> UnitState:
    """The state in one block; what is missing keeps the default."""

    def text(key: str) -> str:
        value = block.get(key, "")
        return "" if value == "[not set]" else value

    def count(key: str) -> int:
        return number(text(key)) or 0

    return UnitState(
        unit=unit,
        load=text("LoadState"),
        active=text("ActiveState"),
        sub=text("SubState"),
        result=text("Result"),
        restarts=count("NRestarts"),
        invocation=text("InvocationID"),
        main_pid=count("MainPID"),
        exit_code=count("ExecMainCode"),
        exit_status=count("ExecMainStatus"),
        since=stamp(text("StateChangeTimestamp")),
        need_reload=text("NeedDaemonReload") == "yes",
        drop_ins=paths(text("DropInPaths")),
        fragment=text("FragmentPath"),
        enabled=text("UnitFileState"),
        memory=number(text("MemoryCurrent")),
        cpu_ns=number(text("CPUUsageNSec")),
        control_group=text("ControlGroup"),
    )


def states(units: Sequence[str], text: str) -> dict[str, UnitState]:
    """The states of those units from one `systemctl show` of all of them; a unit without a block is left out.

    An alias shows its real Id, so place counts; only where blocks are missing does the Id decide.
    """
    found = blocks(text)
    if len(found) == len(units):
        return {unit: unit_state(unit, block) for unit, block in zip(units, found)}
    by_id = {block.get("Id", ""): block for block in found}
    return {unit: unit_state(unit, by_id[unit]) for unit in units if unit in by_id}
