"""What a host's build of an engine is: its flags, versions and speculative algorithms, as read from its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class BuildFlag:
    """One option of the build. name: dash name without `--`. kind: str | int | float | bool | list | '' (not known).

    default: as in the source, None where it is computed or absent. file: where it is declared. deprecated: why, or ''.
    """

    name: str
    aliases: tuple[str, ...] = ()
    kind: str = ""
    default: Any = None
    choices: tuple[str, ...] = ()
    help: str = ""
    file: str = ""
    deprecated: str = ""


@dataclass(frozen=True)
class Build:
    """engine: sglang | wrapper | generic. release: of the engine's package, '' when not known.

    source: ast | help | none (how flags were found). versions: package -> version (torch with its +cuXXX tag).
    cuda: torch's CUDA tag such as 13.0, '' for none. ddtree: how this build spells DDTree ({} for absent):
    {"algorithm": .., "flags": [..]}. patched: installed files that differ from the package's RECORD.
    problems: `not known, because ...`, one a line.
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


@dataclass(frozen=True)
class FlagMark:
    """What this build makes of one flag of the form.

    state: ok | unknown | ambiguous | removed | renamed | deprecated | bad-value | not-known. wanted: the spelling that
    this build wants, '' for none. text: one line, also what a graph flag does in this release.
    """

    name: str
    state: str
    wanted: str = ""
    text: str = ""


def flag(build: Build, name: str) -> BuildFlag | None:
    """The build's option of that name or alias, None without."""
    return next((f for f in build.flags if name == f.name or name in f.aliases), None)
