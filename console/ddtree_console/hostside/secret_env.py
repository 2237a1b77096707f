"""A release's secret environment, derived from the host's secrets file. Values never leave these two 0600 files."""

from __future__ import annotations

from collections.abc import Mapping

from ddtree_console.hostside import durable
from ddtree_console.hostside.roots import Roots


class Missing(Exception):
    """An entry that a profile names is not in the host's secrets file. The text names entry and file, never a value."""


def entries(roots: Roots) -> dict[str, str]:
    """NAME -> raw value of each line NAME=value; comments and other lines are left out."""
    found: dict[str, str] = {}
    for line in (durable.read_text(roots.secrets()) or "").splitlines():
        name, sep, value = line.strip().partition("=")
        if sep and name and not name.startswith("#"):
            found[name.strip()] = value
    return found


def content(roots: Roots, wanted: Mapping[str, str]) -> bytes:
    """The text of secret.env for KEY -> entry name. Missing names the first entry that is not there."""
    have = entries(roots)
    lines: list[str] = []
    for key, name in sorted(wanted.items()):
        if name not in have:
            raise Missing(f"secret {name} (for {key}) is not in {roots.secrets()}")
        lines.append(f"{key}={have[name]}\n")
    return "".join(lines).encode("utf-8", "surrogateescape")
