"""What a unit starts: its one command with the place of each word, and its environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ddtree_console.domain import command_line, quoting
from ddtree_console.domain.unitfile import Entry, Span, UnitFile, parse

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True)
class Assignment:
    """One `K=V` of an Environment= line. value None: it holds a specifier or newline and is not modelled.

    siblings: number of words in its line.
    """

    name: str
    value: str | None
    entry: Entry
    word: quoting.Word
    siblings: int


@dataclass(frozen=True)
class Launch:
    """A unit's start. problem: why its command is not modelled ('' when it is)."""

    unit: UnitFile
    exec: Entry | None = None
    prefix: str = ""
    words: tuple[quoting.Word, ...] = ()
    argv: tuple[str, ...] = ()
    literal: tuple[bool, ...] = ()
    line: command_line.CommandLine = field(default_factory=lambda: command_line.CommandLine(()))
    env: Mapping[str, tuple[Assignment, ...]] = field(default_factory=dict)
    """each variable with all its assignments that count, the effective one last."""
    problem: str = ""

    @property
    def dollar(self) -> bool:
        """Whether `$` is expanded in the command."""
        return ":" not in self.prefix

    def place(self, entry: Entry, start: int, end: int, text: str) -> Span:
        """The replacement of entry.value[start:end] in the unit's text; end == start inserts before start."""
        places = entry.places
        if start == end:
            at = places[start] if start < len(places) else places[-1] + 1
            return Span(at, at, text)
        return Span(places[start], places[end - 1] + 1, text)


def _semicolon(value: str, word: quoting.Word) -> bool:
    return value[word.start : word.end] == ";"


def _read_command(unit: UnitFile) -> Launch:
    entries = unit.assigned("Service", "ExecStart")
    if len(entries) != 1:
        return Launch(unit, problem=f"the unit has {len(entries)} ExecStart= lines, not one")
    entry = entries[0]
    try:
        words = tuple(quoting.words(entry.value))
    except ValueError as error:
        return Launch(unit, entry, problem=f"ExecStart: {error}")
    if any(_semicolon(entry.value, word) for word in words):
        return Launch(unit, entry, problem="ExecStart holds several commands")
    program = words[0].value.lstrip("@-:+!|")
    prefix = words[0].value[: len(words[0].value) - len(program)]
    if "@" in prefix or "|" in prefix:
        return Launch(unit, entry, prefix, problem=f"ExecStart has the prefix {prefix}")
    if not program or (words[0].quoted and prefix):
        return Launch(unit, entry, prefix, problem="ExecStart names no program")
    # `$` in the program's path is plain, unlike in its arguments
    first = quoting.unescape_percent(program)
    rest = [
        (";", True) if entry.value[w.start : w.end] == "\\;" else quoting.unquote_arg(w, ":" not in prefix)
        for w in words[1:]
    ]
    argv = tuple(value for value, _ in (first, *rest))
    literal = tuple(flag for _, flag in (first, *rest))
    return Launch(unit, entry, prefix, words, argv, literal, command_line.parse(argv))


def _modelled(value: str) -> bool:
    try:
        quoting.check_value(value)
    except ValueError:
        return False
    return True


def _read_env(unit: UnitFile) -> dict[str, tuple[Assignment, ...]]:
    found: dict[str, tuple[Assignment, ...]] = {}
    for entry in unit.assigned("Service", "Environment"):
        try:
            words = tuple(quoting.words(entry.value))
        except ValueError:
            continue
        for word in words:
            text, literal = quoting.unescape_percent(word.value)
            name, equals, value = text.partition("=")
            if equals and _ENV_NAME.match(name):
                kept = value if literal and _modelled(value) else None
                found[name] = (*found.get(name, ()), Assignment(name, kept, entry, word, len(words)))
    return found


def read(text: str) -> Launch:
    """The launch in a unit's text (drop-ins joined). Never raises; what is not modelled says so in `problem`."""
    unit = parse(text)
    launch = _read_command(unit)
    bad = next((value for value in launch.argv if not _modelled(value)), None)
    if bad is not None:
        launch = Launch(unit, launch.exec, launch.prefix, problem="ExecStart holds a value that no profile can hold")
    return Launch(
        unit, launch.exec, launch.prefix, launch.words, launch.argv, launch.literal, launch.line, _read_env(unit),
        launch.problem,
    )  # fmt: skip
