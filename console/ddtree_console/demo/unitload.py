"""Reads unit files as systemd 252 does: search path, drop-ins, continuation lines, quoting, specifiers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from json import loads
from pathlib import Path

from ddtree_console.domain import quoting

SEARCH = ("run/systemd/system.control", "run/systemd/transient", "etc/systemd/system", "run/systemd/system")
_SPAN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)
_UNITS = {
    **dict.fromkeys(("us", "usec"), 1e-6),
    **dict.fromkeys(("ms", "msec"), 1e-3),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}


@dataclass
class UnitText:
    """What the files of one unit say. load: loaded | not-found | bad-setting | masked. problems: systemd's warnings."""

    name: str
    load: str = "not-found"
    fragment: str = ""
    drop_ins: tuple[str, ...] = ()
    stamps: Mapping[str, int] = field(default_factory=dict)
    values: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def last(self, section: str, key: str, default: str = "") -> str:
        """The value that holds: the last one assigned."""
        found = self.values.get((section, key))
        return found[-1] if found else default

    def all(self, section: str, key: str) -> list[str]:
        """Every value of a list setting, in order; an empty assignment has cleared those before it."""
        return list(self.values.get((section, key), ()))


@cache
def directives() -> Mapping[str, frozenset[str]]:
    """Every key that systemd 252 knows, by section."""
    raw = loads(resources.files(__package__).joinpath("directives.json").read_text("utf-8"))
    return {section: frozenset(keys.split()) for section, keys in raw.items()}


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(line number, line) with continuations joined; comments inside a continuation are skipped."""
    held, first = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip()[:1] in ("#", ";"):
            continue
        if not held:
            first = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            held += line[:-1] + " "
            continue
        yield first, (held + line).strip()
        held = ""
    if held:
        yield first, held.strip()


def read_into(unit: UnitText, path: Path) -> None:
    """Adds one file's assignments and problems; OSError when it cannot be read."""
    known, section = directives(), ""
    for number, line in logical_lines(path.read_text("utf-8", "surrogateescape")):
        where = f"{path}:{number}:"
        if not line:
            continue
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
            if section not in known and not section.startswith("X-"):
                unit.problems.append(f"{where} Unknown section '{section}'. Ignoring.")
            continue
        if section not in known:
            continue
        key, sep, value = line.partition("=")
        key, value = key.rstrip(), value.lstrip()
        if not sep:
            unit.problems.append(f"{where} Missing '=', ignoring line.")
        elif not section:
            unit.problems.append(f"{where} Assignment outside of section. Ignoring.")
        elif key not in known[section] and not key.startswith("X-"):
            unit.problems.append(f"{where} Unknown key '{key}' in section [{section}], ignoring.")
        elif problem := value_problem(key, value):
            fatal = key.startswith("Exec")
            unit.problems.append(f"{where} {problem}")
            if fatal:
                unit.load = "bad-setting"
        elif value:
            unit.values.setdefault((section, key), []).append(value)
        else:
            unit.values[(section, key)] = []


def value_problem(key: str, value: str) -> str:
    """systemd's words for a value that it refuses, '' for a good one. Only what the sandbox itself uses is checked."""
    if key.startswith("Exec") and key not in ("ExecPaths", "ExecSearchPath") and value:
        try:
            argv = words(value)
        except ValueError:
            return f'Unbalanced quoting, ignoring: "{value}"'
        program = argv[0].lstrip("-@:+!") if argv else ""
        if "/" in program and not program.startswith("/"):
            return f"Neither a valid executable name nor an absolute path: {program}"
    if key == "Restart" and value not in RESTARTS:
        return f"Failed to parse service restart specifier, ignoring: {value}"
    if key in ("RestartSec", "TimeoutStopSec", "TimeoutStartSec") and value and span(value) is None:
        return f"Failed to parse sec value, ignoring: {value}"
    if key == "Environment":
        try:
            words(value)
        except ValueError:
            return f"Invalid syntax, ignoring: {value}"
    return ""


RESTARTS = ("no", "always", "on-success", "on-failure", "on-abnormal", "on-abort", "on-watchdog")


def words(text: str) -> list[str]:
    """Splits as systemd does. ValueError for an unbalanced quote."""
    return [word.value for word in quoting.words(text)]


def span(text: str) -> float | None:
    """Seconds of a time span such as `1min 30s`; inf for infinity, None when systemd would refuse it."""
    if text.strip() == "infinity":
        return float("inf")
    total, at = 0.0, 0
    while at < len(text.rstrip()):
        match = _SPAN.match(text, at)
        if not match or match.group(2) not in _UNITS:
            return None
        total += float(match.group(1)) * _UNITS[match.group(2)]
        at = match.end()
    return total if text.strip() else None


def specifiers(text: str, values: Mapping[str, str]) -> str:
    """`%n` and friends replaced; `%%` is one percent; an unknown one stays as it is."""
    return re.sub(r"%(.)", lambda m: "%" if m[1] == "%" else values.get(m[1], m[0]), text)


def expand(argv: list[str], env: Mapping[str, str]) -> list[str]:
    """`${A}` inside words, `$A` as a whole word (split at spaces), `$$` a dollar; the program itself is left alone."""
    out = argv[:1]
    for word in argv[1:]:
        whole = re.fullmatch(r"\$([A-Za-z_][A-Za-z0-9_]*)", word)
        if whole:
            out += env.get(whole[1], "").split()
            continue
        out.append(
            re.sub(
                r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)\})",
                lambda m: env.get(m[1], "") if m[1] else "$",
                word,
            )
        )
    return out


def find(root: Path, name: str) -> tuple[Path | None, list[Path]]:
    """(fragment, drop-ins) by systemd's priority; a drop-in of one name is read from the first folder that has it."""
    fragment = next((p for d in SEARCH if os.path.lexists(p := root / d / name)), None)
    drop_ins: dict[str, Path] = {}
    for folder in ("service.d", f"{name}.d"):
        for base in reversed(SEARCH):
            directory = root / base / folder
            if directory.is_dir():
                drop_ins.update((p.name, p) for p in directory.iterdir() if p.suffix == ".conf")
    return fragment, [drop_ins[name] for name in sorted(drop_ins)]


def stamp(path: str) -> int:
    """Modification time in ns, -1 when it is gone."""
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return -1


def load(root: Path, name: str) -> UnitText:
    """The unit as its files say now. root holds etc/ and run/."""
    unit = UnitText(name)
    fragment, drop_ins = find(root, name)
    if fragment is None:
        return unit
    unit.load, unit.fragment, unit.drop_ins = "loaded", str(fragment), tuple(str(p) for p in drop_ins)
    unit.stamps = {path: stamp(path) for path in (unit.fragment, *unit.drop_ins)}
    if fragment.resolve() == Path("/dev/null"):
        unit.load = "masked"
        return unit
    for path in (fragment, *drop_ins):
        try:
            read_into(unit, path)
        except OSError as error:
            unit.load = "error"
            unit.problems.append(f"{path}: Failed to open: {error.strerror}")
    finish(unit)
    return unit


def finish(unit: UnitText) -> None:
    """systemd's last look at a unit that was read: without a command it cannot be started."""
    if unit.load == "loaded" and not (unit.all("Service", "ExecStart") or unit.all("Service", "ExecStop")):
        unit.load = "bad-setting"
        unit.problems.append(f"{unit.name}: Service has no ExecStart=, ExecStop=, or SuccessAction=. Refusing.")
    elif unit.load == "bad-setting":
        unit.problems.append(f"{unit.name}: Unit configuration has fatal error, unit will not be started.")
