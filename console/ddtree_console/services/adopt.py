"""A unit that somebody wrote by hand becomes a profile here and release r1 there, without loss."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from ddtree_console.domain import adoption
from ddtree_console.domain.plan import Candidate
from ddtree_console.services.commands import Commands
from ddtree_console.services.errors import HostError
from ddtree_console.services.preview import drop_ins
from ddtree_console.services.wire import profile_json


def profile_name(unit: str, taken: Collection[str]) -> str:
    """A free profile name made of the unit's."""
    base = re.sub(r"[^A-Za-z0-9_.-]+", "-", unit.removesuffix(".service")).strip("-.") or "adopted"
    name, n = base, 1
    while name in taken:
        n += 1
        name = f"{base}-{n}"
    return name


async def read(commands: Commands, unit: str) -> Mapping[str, Any]:
    """The host's `read` of a unit that exists; HostError(2) where it does not."""
    found = await commands.call("read", {"unit": unit})
    if not str(found.get("text") or ""):
        raise HostError(commands.name, "adopt", f"{unit} has no unit file", "see `systemctl cat` on the host", 2)
    return found


def as_profile(found: Mapping[str, Any], name: str) -> adoption.Adopted:
    """What the host has as a profile, drop-ins joined."""
    return adoption.adopt(str(found.get("text") or ""), drop_ins(found), name)


async def keep(commands: Commands, unit: str, adopted: adoption.Adopted, way_back: Candidate | None, who: str) -> str:
    """Keeps the unit as a release on the host; its name. HostError as Commands.call."""
    payload: dict[str, Any] = {
        "unit": unit,
        "profile": profile_json(adopted.profile),
        "profile_name": adopted.profile.name,
        "engine": adopted.profile.engine,
        "who": who,
    }
    if way_back is not None:
        payload["way_back"] = asdict(way_back)
    answer = await commands.call("adopt", payload)
    return str(answer.get("release") or "r1")
