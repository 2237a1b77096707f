"""Installed versions against what the engine's own metadata asks for. Pure; as much of PEP 440 as pins use."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddtree_console.domain.build import Build

_CLAUSE = re.compile(r"(==|!=|<=|>=|<|>|~=|===)\s*([^,\s]+)")
_VERSION = re.compile(
    r"v?(?:\d+!)?(\d+(?:\.\d+)*)[-_.]?(?:(a|alpha|b|beta|c|rc|pre|preview)[-_.]?(\d*))?"
    r"(?:[-_.]?(post|rev|r)[-_.]?(\d*)|-(\d+))?(?:[-_.]?(dev)[-_.]?(\d*))?(?:\+([a-z0-9.]+))?\Z",
    re.I,
)
_STAGES = {"a": -3, "alpha": -3, "b": -2, "beta": -2, "c": -1, "rc": -1, "pre": -1, "preview": -1}


@dataclass(frozen=True)
class Mismatch:
    """A package that is not as the engine wants it. has: '' where it is not installed."""

    package: str
    has: str
    wants: str

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.package} {self.has or 'is not installed'}, wanted {self.wants}"


def order(version: str) -> tuple[tuple[int, ...], int, int, int, int] | None:
    """A key that sorts as versions do, without the local part (+cu130); None for what is no version."""
    match = _VERSION.match(version.strip())
    if match is None:
        return None
    numbers = [int(n) for n in match.group(1).split(".")]
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    stage, nth = _STAGES.get((match.group(2) or "").lower(), 0), int(match.group(3) or 0)
    posted = match.group(4) or match.group(6)
    post = int(match.group(5) or match.group(6) or 0) + 1 if posted else 0
    dev = int(match.group(8) or 0) if match.group(7) else 1 << 30
    if match.group(7) and not stage and not posted:
        stage = -4  # 1.0.dev1 comes before 1.0a1
    return tuple(numbers), stage, nth, post, dev


def satisfies(version: str, wanted: str) -> bool | None:
    """Whether the version meets every clause of `==2.11.0`, `<0.15,>=0.14.1`; None where that cannot be told."""
    clauses = _CLAUSE.findall(wanted)
    if not clauses or _CLAUSE.sub("", wanted).strip(" ,"):
        return None
    told = [_meets(version, sign, pin) for sign, pin in clauses]
    return None if None in told else all(told)


def _meets(version: str, sign: str, pin: str) -> bool | None:
    if sign == "===":
        return version == pin
    if pin.endswith(".*"):
        head = order(pin[:-2])
        mine = order(version)
        if head is None or mine is None or sign not in ("==", "!="):
            return None
        size = len(pin[:-2].split("."))
        padded = [tuple(([*key[0], *[0] * size])[:size]) for key in (mine, head)]
        return (padded[0] == padded[1]) == (sign == "==")
    a, b = order(version), order(pin)
    if a is None or b is None:
        return None
    if sign == "~=":
        size = len(pin.split(".")) - 1
        cut = [tuple(([*key[0], *[0] * size])[:size]) for key in (a, b)]
        return a >= b and cut[0] == cut[1]
    if sign in ("==", "!="):
        local = pin.partition("+")[2]
        same = a == b and (not local or version.partition("+")[2] == local)
        return same == (sign == "==")
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[sign]


def mismatches(build: Build) -> tuple[Mismatch, ...]:
    """Packages of `pins` that are absent or of another version; one that cannot be compared is none."""
    found = []
    for package, wanted in build.pins.items():
        has = build.versions.get(package, "")
        if not has or satisfies(has, wanted) is False:
            found.append(Mismatch(package, has, wanted))
    return tuple(found)
