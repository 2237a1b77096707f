"""What a command line says: interpreter, module, model, flags and the rest, with the place of each word."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddtree_console.domain.engines import sglang_launch, wrapper

_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)[0-9.]*\Z")
_BARE = re.compile(r"(?:disable|enable|skip|trust|no)-")
_BOOLS = {f.name for f in (*sglang_launch.FLAGS, *wrapper.FLAGS) if f.kind == "bool"}
_KNOWN = sglang_launch.KNOWN | {f.name for f in wrapper.FLAGS} | {"mode", "draft"}
_SINGLE = _KNOWN - _BOOLS - {"cuda-graph-bs", "config"}
_MODULES = {sglang_launch.MODULE: "sglang", "sglang": "sglang", wrapper.MODULE: "wrapper"}


@dataclass(frozen=True)
class Flag:
    """A flag in argv[first:last]. glued: written as --name=value."""

    name: str
    value: Any
    first: int
    last: int
    glued: bool = False


@dataclass(frozen=True)
class CommandLine:
    """argv taken apart; head, found and loose together hold each word once.

    head: number of words that start the program. flags: without model and port. args: words that are no plain flag.
    """

    argv: tuple[str, ...]
    head: int = 0
    python: str | None = None
    module: str | None = None
    engine: str = "generic"
    model: str | None = None
    port: int | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    found: tuple[Flag, ...] = ()
    loose: tuple[int, ...] = ()

    def flag(self, name: str) -> Flag | None:
        """The flag of that name, model and port included."""
        for flag in self.found:
            if flag.name == name:
                return flag
        return None


def typed(text: str) -> Any:
    """A number where the text is exactly how that number is written, else the text."""
    if re.fullmatch(r"-?[0-9]{1,18}", text) and str(int(text)) == text:
        return int(text)
    if re.fullmatch(r"-?[0-9]{1,9}\.[0-9]{1,9}", text) and str(float(text)) == text:
        return float(text)
    return text


def _is_value(word: str) -> bool:
    return not word.startswith("-") or re.fullmatch(r"-[0-9.]+", word) is not None


def _head(argv: Sequence[str]) -> tuple[int, str | None, str | None]:
    """(words that start the program, interpreter, module or program)."""
    for i in range(1, len(argv) - 1):
        if argv[i] == "-m" and argv[i + 1] in _MODULES:
            python = next((w for w in reversed(argv[:i]) if _PYTHON.match(w)), None)
            return i + 2 + (list(argv[i + 2 : i + 3]) == ["serve"]), python, argv[i + 1]
    if argv and _PYTHON.match(argv[0]):
        for i in range(1, len(argv)):
            if argv[i] == "-m" and i + 1 < len(argv):
                return i + 2, argv[0], argv[i + 1]
            if not argv[i].startswith("-"):
                return i + 1, argv[0], argv[i]
        return len(argv), argv[0], None
    end = 1
    while end < len(argv) and not argv[end].startswith("-"):
        end += 1
    return min(end, len(argv)), None, argv[0] if argv else None


def _engine(module: str | None, argv: Sequence[str], head: int) -> str:
    if module is None:
        return "generic"
    name = module.rsplit("/", 1)[-1]
    if name == wrapper.PROGRAM:
        return "wrapper"
    if name == "sglang" and "serve" not in argv[:head]:
        return "generic"
    return _MODULES.get(name, "generic")


def _flag_at(argv: Sequence[str], i: int) -> Flag:
    name, equals, value = argv[i][2:].partition("=")
    if equals:
        return Flag(name, typed(value), i, i + 1, True)
    last = i + 1
    if name not in _BOOLS and not _BARE.match(name):
        while last < len(argv) and _is_value(argv[last]) and not (name in _SINGLE and last > i + 1):
            last += 1
    values = [typed(word) for word in argv[i + 1 : last]]
    return Flag(name, True if not values else values[0] if len(values) == 1 else values, i, last)


def _canonical(name: str) -> str:
    return "model-path" if name in sglang_launch.MODEL_FLAGS else name


def _plain(name: str) -> bool:
    """Whether it is a whole flag name, and no argparse prefix of one."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        return False
    return name in _KNOWN or not any(known.startswith(name) for known in _KNOWN)


def parse(argv: Sequence[str]) -> CommandLine:
    """The command line taken apart. argparse prefixes, repeated flags and other words stay verbatim in args."""
    argv = tuple(argv)
    head, python, module = _head(argv)
    flags: list[Flag] = []
    loose: list[int] = []
    i = head
    while i < len(argv):
        if argv[i] == "--":
            loose += range(i, len(argv))
            break
        if not argv[i].startswith("--"):
            loose.append(i)
            i += 1
            continue
        flags.append(_flag_at(argv, i))
        i = flags[-1].last
    seen = Counter(_canonical(flag.name) for flag in flags)
    found = tuple(flag for flag in flags if seen[_canonical(flag.name)] == 1 and _plain(flag.name))
    for flag in flags:
        if flag not in found:
            loose += range(flag.first, flag.last)
    model = next(
        (f for f in found if f.name in sglang_launch.MODEL_FLAGS and not isinstance(f.value, (bool, list))), None
    )
    port = next((f for f in found if f.name == "port" and type(f.value) is int and 0 < f.value < 65536), None)
    return CommandLine(
        argv=argv,
        head=head,
        python=python,
        module=module,
        engine=_engine(module, argv, head),
        model=str(model.value) if model else None,
        port=port.value if port else None,
        flags={f.name: f.value for f in found if f is not model and f is not port},
        args=tuple(argv[i] for i in sorted(loose)),
        found=found,
        loose=tuple(sorted(loose)),
    )


def running_flags(argv: Sequence[str]) -> dict[str, Any]:
    """The flags of a running server's command line (/proc/PID/cmdline), for a comparison with a profile's."""
    return dict(parse(argv).flags)
