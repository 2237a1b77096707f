"""What a host's build of an engine is: its flags, versions and speculative algorithms, as read from its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class BuildFlag:
    """One option of the build. name: dash name without `--`. kind: str | int | float | bool | list | size (a whole
    number that may end in k, M, ..) | '' (not known).

    default: as in the source, None where it is computed or absent. file: where it is declared, with its line.
    deprecated: why, or ''. instead: the flag that the source names as the new one, without `--`, or ''. refused: the
    build still parses it, but only to stop the launch.
    """

    name: str
    aliases: tuple[str, ...] = ()
    kind: str = ""
    default: Any = None
    choices: tuple[str, ...] = ()
    help: str = ""
    file: str = ""
    deprecated: str = ""
    instead: str = ""
    refused: bool = False
    items: str = ""
    """kind of a list's members, '' where it is not known."""


@dataclass(frozen=True)
class Build:
    """engine: sglang | wrapper | generic. release: of the engine's package, '' when not known.

    source: ast | help | none (how flags were found). versions: package -> version (torch with its +cuXXX tag).
    cuda: torch's CUDA tag such as 13.0, '' for none. ddtree: how this build spells DDTree ({} for absent):
    {"algorithm": .., "flags": [..], "files": [..], "plugin": ..}. patched: installed files that differ from the
    package's RECORD. problems: `not known, because ...`, one a line. pins: package -> what the engine's own metadata
    asks for (`==2.11.0`). plugins: name -> `distribution version` of entry points that the engine loads.
    """

    engine: str = ""
    release: str = ""
    python: str = ""
    package: str = ""
    source: str = "none"
    flags: tuple[BuildFlag, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    cuda: str = ""
    algorithms: tuple[str, ...] = ()
    ddtree: Mapping[str, Any] = field(default_factory=dict)
    patched: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    plugins: Mapping[str, str] = field(default_factory=dict)
    cached: bool = False


@dataclass(frozen=True)
class FlagMark:
    """What this build makes of one flag of the form.

    state: ok | unknown | ambiguous | removed | renamed | deprecated | bad-value | partial | not-known. partial: it does
    less than it says in this release (a graph is still captured). wanted: the spelling that this build wants, or what
    to add; '' for none. text: one line, also what a graph flag does in this release.
    """

    name: str
    state: str
    wanted: str = ""
    text: str = ""


REFUSED = frozenset({"unknown", "ambiguous", "removed", "renamed", "bad-value"})
"""states of a mark with which the server does not start: argparse ends it with exit status 2, or the flag itself."""


def flag(build: Build, name: str) -> BuildFlag | None:
    """The build's option of that name or alias, None without."""
    return next((f for f in build.flags if name == f.name or name in f.aliases), None)


def _texts(raw: Any) -> tuple[str, ...]:
    return tuple(x for x in raw if isinstance(x, str)) if isinstance(raw, (list, tuple)) else ()


def _mapping(raw: Any) -> dict[str, str]:
    items = raw.items() if isinstance(raw, Mapping) else ()
    return {k: v for k, v in items if isinstance(k, str) and isinstance(v, str)}


def _flag(raw: Any) -> BuildFlag | None:
    if not isinstance(raw, Mapping) or not isinstance(raw.get("name"), str) or not raw["name"]:
        return None
    texts = {
        key: raw[key]
        for key in ("name", "kind", "help", "file", "deprecated", "instead", "items")
        if isinstance(raw.get(key), str)
    }
    return BuildFlag(
        aliases=_texts(raw.get("aliases")),
        choices=_texts(raw.get("choices")),
        default=raw.get("default"),
        refused=raw.get("refused") is True,
        **texts,
    )


def build_from_json(raw: Any) -> Build:
    """The build in the answer of the host's `inspect`; odd values are left out, unknown keys ignored."""
    if not isinstance(raw, Mapping):
        return Build(problems=("not known, because the host's answer is no object",))
    values: dict[str, Any] = {}
    for one in fields(Build):
        value = raw.get(one.name)
        if one.name == "flags":
            rows = value if isinstance(value, (list, tuple)) else ()
            values["flags"] = tuple(f for f in map(_flag, rows) if f is not None)
        elif one.name in ("versions", "pins", "plugins"):
            values[one.name] = _mapping(value)
        elif one.name == "ddtree":
            values["ddtree"] = dict(value) if isinstance(value, Mapping) else {}
        elif one.name in ("algorithms", "patched", "problems"):
            values[one.name] = _texts(value)
        elif one.name == "cached":
            values["cached"] = value is True
        elif isinstance(value, str):
            values[one.name] = value
    return Build(**values)
