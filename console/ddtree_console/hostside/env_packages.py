"""Installed distributions on a search path, read from their folders' names; what they ask for, from their METADATA."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_INFO = re.compile(r"(?P<name>.+?)-(?P<version>[0-9][^-]*)(?:-py[0-9.]+)?\.(?:dist-info|egg-info)\Z")
_NEED = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;\s*(.*))?\Z")
_MARK = re.compile(r"\s*(\(|\)|and\b|or\b|'[^']*'|\"[^\"]*\"|[a-z_]+|[<>=!~]+|in\b|not\s+in\b)")


@dataclass(frozen=True)
class Package:
    """One distribution. name: normalised (lower case, dashes). folder: where its modules lie."""

    name: str
    version: str
    folder: str
    info: str


@dataclass(frozen=True)
class Need:
    """One Requires-Dist. pin: its version clauses. marker: when it holds, '' always."""

    name: str
    pin: str = ""
    marker: str = ""


def normal(name: str) -> str:
    """A distribution's name as it compares."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(path: Iterable[str]) -> dict[str, Package]:
    """Distributions by normalised name; the first folder of the path wins, as at an import."""
    found: dict[str, Package] = {}
    for folder in path:
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208 - names alone, and fast
        except OSError:
            continue
        for entry in names:
            match = _INFO.match(entry)
            if match:
                name = normal(match["name"])
                found.setdefault(name, Package(name, match["version"], folder, str(Path(folder, entry))))
    return found


def metadata(package: Package) -> str:
    """The header of its METADATA; '' where it cannot be read (half installed)."""
    for name in ("METADATA", "PKG-INFO"):
        try:
            text = Path(package.info, name).read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        return text.replace("\r\n", "\n").partition("\n\n")[0]
    return ""


def needs(package: Package) -> Iterator[Need]:
    """Its Requires-Dist lines."""
    for line in metadata(package).splitlines():
        if line.startswith("Requires-Dist:"):
            match = _NEED.match(line[len("Requires-Dist:") :])
            if match:
                yield Need(normal(match[1]), (match[2] or "").strip(), (match[3] or "").strip())


def numbers(version: str) -> tuple[int, ...]:
    """The release part of a version, local tag and suffixes left out: 2.9.1+cu130 -> (2, 9, 1)."""
    match = re.match(r"v?(?:\d+!)?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def _compare(a: str, b: str) -> int:
    left, right = numbers(a), numbers(b)
    size = max(len(left), len(right))
    left, right = left + (0,) * (size - len(left)), right + (0,) * (size - len(right))
    return (left > right) - (left < right)


def satisfies(version: str, pin: str) -> bool:
    """Whether a version meets the clauses. Only releases are compared: pre-releases and local tags count as theirs."""
    for clause in filter(None, (part.strip() for part in pin.split(","))):
        match = re.match(r"(===|==|!=|~=|>=|<=|>|<)\s*(.+)\Z", clause)
        if not match:
            return True
        sign, wanted = match[1], match[2].strip()
        if wanted.endswith(".*"):
            prefix = numbers(wanted[:-2])
            same = numbers(version)[: len(prefix)] == prefix
            if same != (sign in ("==", "===")):
                return False
            continue
        order = _compare(version, wanted)
        held = {
            "==": order == 0,
            "===": order == 0,
            "!=": order != 0,
            ">=": order >= 0,
            "<=": order <= 0,
            ">": order > 0,
            "<": order < 0,
            "~=": order >= 0 and numbers(version)[: len(numbers(wanted)) - 1] == numbers(wanted)[:-1],
        }[sign]
        if not held:
            return False
    return True


def holds(marker: str, known: Mapping[str, str]) -> bool:
    """Whether an environment marker holds; a marker that is not understood does not (nothing is demanded by it)."""
    if not marker:
        return True
    words: list[str] = []
    at = 0
    while at < len(marker.rstrip()):
        match = _MARK.match(marker, at)
        if not match:
            return False
        words.append(match[1])
        at = match.end()
    try:
        value, rest = _either(words, known)
    except (IndexError, ValueError):
        return False
    return value and not rest


def _either(words: list[str], known: Mapping[str, str]) -> tuple[bool, list[str]]:
    value, words = _both(words, known)
    while words and words[0] == "or":
        more, words = _both(words[1:], known)
        value = value or more
    return value, words


def _both(words: list[str], known: Mapping[str, str]) -> tuple[bool, list[str]]:
    value, words = _one(words, known)
    while words and words[0] == "and":
        more, words = _one(words[1:], known)
        value = value and more
    return value, words


def _one(words: list[str], known: Mapping[str, str]) -> tuple[bool, list[str]]:
    if words[0] == "(":
        value, words = _either(words[1:], known)
        if words[0] != ")":
            raise ValueError("no closing bracket")
        return value, words[1:]
    left, sign, right = words[:3]
    versions = "version" in left or "version" in right
    a, b = _text(left, known), _text(right, known)
    if sign == "in":
        return a in b, words[3:]
    if sign.startswith("not"):
        return a not in b, words[3:]
    if versions and numbers(a) and numbers(b):
        return satisfies(a, sign + b), words[3:]
    return (a == b) if sign in ("==", "===") else (a != b) if sign == "!=" else False, words[3:]


def _text(word: str, known: Mapping[str, str]) -> str:
    return word[1:-1] if word[:1] in "'\"" else known.get(word, "")
