"""Command line reading as getopt does it for systemd's tools: long, short and joined options, `--`, any order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


class Usage(Exception):
    """A command line that the tool refuses; the text is its complaint."""


@dataclass
class Parsed:
    """options: name -> values in order ('' for a plain switch). words: everything else."""

    options: dict[str, list[str]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def last(self, name: str, default: str = "") -> str:
        """The value given last."""
        return self.options.get(name, [default])[-1]

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return name in self.options

    def listed(self, name: str) -> list[str]:
        """Every value, split at commas."""
        return [part for value in self.options.get(name, []) for part in value.split(",") if part]


def parse(
    args: Iterable[str],
    valued: Iterable[str],
    switches: Iterable[str],
    short: Mapping[str, str],
    *,
    optional: Iterable[str] = (),
    stop_at_word: bool = False,
) -> Parsed:
    """Reads the arguments. short: letter -> long name. optional: valued ones whose value must be joined.

    Usage for an unknown option or a missing value.
    """
    valued, switches, optional = set(valued), set(switches), set(optional)
    found, left = Parsed(), list(args)
    while left:
        arg = left.pop(0)
        if arg == "--":
            found.words += left
            break
        if arg.startswith("--"):
            name, sep, value = arg[2:].partition("=")
            if name in valued:
                if not sep:
                    if not left:
                        raise Usage(f"option '--{name}' requires an argument")
                    value = left.pop(0)
            elif name not in switches and name not in optional:
                raise Usage(f"unrecognized option '--{name}'")
            found.options.setdefault(name, []).append(value)
        elif arg.startswith("-") and len(arg) > 1:
            _short(arg[1:], left, found, valued, optional, short)
        else:
            found.words.append(arg)
            if stop_at_word:
                found.words += left
                break
    return found


def _short(
    cluster: str, left: list[str], found: Parsed, valued: set[str], optional: set[str], short: Mapping[str, str]
) -> None:
    while cluster:
        letter, cluster = cluster[0], cluster[1:]
        name = short.get(letter)
        if name is None:
            raise Usage(f"invalid option -- '{letter}'")
        value = ""
        if name in valued:
            if not cluster and not left:
                raise Usage(f"option requires an argument -- '{letter}'")
            value, cluster = (cluster, "") if cluster else (left.pop(0), "")
        elif name in optional:
            value, cluster = cluster, ""
        found.options.setdefault(name, []).append(value)
