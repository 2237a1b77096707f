"""The GPU check of a host: the kernels carried over, then run there on a free GPU by a service's interpreter."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ddtree_console.domain.spec import Host, Profile, Service
from ddtree_console.services.commands import Commands
from ddtree_console.services.errors import HostError
from ddtree_console.services.plans import Operator

WARNING = (
    "a kernel that crashes can take the GPU off the bus until the host is restarted; "
    "it runs in a child with a memory cap and a time limit"
)


class Carried(Protocol):
    """An archive: transport.archive.Archive."""

    @property
    def hash(self) -> str:
        """Of its bytes."""
        ...

    @property
    def data(self) -> bytes:
        """A tar."""
        ...


@dataclass(frozen=True)
class Ask:
    """What to check. memory_mb: most that torch may allocate. limit: seconds in all."""

    gpu: int
    service: Service
    profile: Profile
    memory_mb: int = 2000
    limit: float = 300.0


def choose(host: Host, profiles: Mapping[str, Profile], gpu: int | None, service: str) -> tuple[int, Service, Profile]:
    """(GPU, service, profile): the named service, else the GPU's first owner, else the first there is; HostError(2)."""
    owners = [s for s in host.services if gpu is None or gpu in s.gpus] or list(host.services)
    found = next((s for s in owners if service in ("", s.name)), None)
    if found is None:
        known = ", ".join(s.name for s in host.services) or "none"
        raise HostError(host.name, "gpu-check", f"no service {service!r} here", f"services: {known}", 2)
    if gpu is None and not found.gpus:
        raise HostError(found.key, "gpu-check", "the slot names no GPU", "name one with --gpu INDEX", 2)
    profile = profiles.get(found.profile)
    if profile is None:
        raise HostError(found.key, "gpu-check", f"no profile {found.profile!r}", "correct the fleet file", 2)
    return (found.gpus[0] if gpu is None else gpu), found, profile


def request(ask: Ask, host: Host, archive: Carried, operator: Operator) -> dict[str, Any]:
    """The host command's payload. Variables that are secrets stay on the host: a check needs none of them."""
    units = [s.unit for s in host.services if ask.gpu in s.gpus]
    return {
        "hash": archive.hash,
        "gpu": ask.gpu,
        "units": units,
        "python": ask.profile.python or "python3",
        "user": ask.profile.user or "",
        "env": {k: v for k, v in ask.profile.env.items() if isinstance(v, str)},
        "memory_mb": ask.memory_mb,
        "limit": ask.limit,
        "who": operator.who,
        "from": operator.origin,
    }


async def run(
    commands: Commands, host: Host, ask: Ask, archive: Carried, operator: Operator
) -> AsyncIterator[dict[str, Any]]:
    """Rows as they come: {"began"}, one a stage {"stage", "state", ..}, {"verdict"}, {"ended"}; HostError: refused."""
    tar = base64.b64encode(archive.data).decode()
    await commands.call("carry", {"hash": archive.hash, "tar": tar}, 60.0)
    async for row in commands.stream("gpu_check", request(ask, host, archive, operator)):
        yield row
