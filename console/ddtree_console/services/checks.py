"""Checks of a host: what the console itself sees of the connection, then what the host code finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtree_console.domain.snapshot import HostSnapshot
from ddtree_console.domain.spec import Host, Profile, Service
from ddtree_console.services import plans
from ddtree_console.services.api import Check
from ddtree_console.services.commands import Commands
from ddtree_console.services.errors import HostError
from ddtree_console.services.history import check as host_checks


def own(host: HostSnapshot, error: HostError | None) -> list[Check]:
    """Connection, sudo, python and systemd as the link tells them."""
    if error is not None:
        return [Check("connection", "fail", error.cause, error.next_step)]
    took = f"first word after {host.latency:.2f} s" if host.latency is not None else "up"
    sudo = (
        Check("sudo", "ok", "commands run as root")
        if host.privileged
        else Check("sudo", "fail", host.error or "read-only", "allow `sudo -n` for this user")
    )
    return [
        Check("connection", "ok", took),
        sudo,
        Check("python", "ok" if host.python else "unknown", host.python or "not reported"),
        Check("systemd", "ok" if host.systemd else "unknown", host.systemd or "not reported"),
    ]


def _way_back(host: Host, service: Service, profiles: Mapping[str, Profile]) -> dict[str, Any]:
    """What a deployment would keep as the way back; {} where only what is kept can be looked at."""
    if service.fallback_service:
        other = next((s for s in host.services if s.name == service.fallback_service), None)
        return {"service": other.unit} if other is not None else {}
    profile = profiles.get(service.fallback or "")
    if profile is None:
        return {}
    try:
        return {"name": profile.name, "unit_text": plans.candidate(profile, service).unit_text}
    except HostError:
        return {}


def slot(
    host: Host, service: Service, profile: Profile | None, profiles: Mapping[str, Profile]
) -> tuple[dict[str, Any], Check | None]:
    """(what the host is asked of a slot, what already fails here): with the unit that `profile` would start there."""
    mine = set(service.gpus)
    asked: dict[str, Any] = {
        "service": service.name,
        "unit": service.unit,
        "port": service.port,
        "gpus": list(service.gpus),
        "way_back": _way_back(host, service, profiles),
        "sharing": [s.unit for s in host.services if s.unit != service.unit and mine & set(s.gpus)],
    }
    if profile is None:
        return asked, None
    try:
        made = plans.candidate(profile, service)
    except HostError as error:
        return asked, Check(f"{service.name}: profile", "fail", f"{profile.name}: {error.cause}", error.next_step)
    more = {"unit_text": made.unit_text, "profile": profile.name, "secrets": dict(made.secrets), "engine": made.engine}
    return {**asked, **more}, None


async def ask(
    commands: Commands, snapshot: HostSnapshot, slots: Sequence[Mapping[str, Any]], seconds: float | None = None
) -> list[Check]:
    """The console's own checks and the host's, of those slots. A host that does not answer is one failed check."""
    found = own(snapshot, None)
    names = {"privileged", *(check.name for check in found)}
    try:
        more = await host_checks(commands, slots, seconds)
    except HostError as failed:
        return [*found, Check("host checks", "unknown", f"not known, because {failed.cause}", failed.next_step)]
    return [*found, *(c for c in more if c.name not in names)]


async def run(
    commands: Commands,
    host: Host,
    snapshot: HostSnapshot,
    service: str,
    error: HostError | None,
    profiles: Mapping[str, Profile],
) -> Sequence[Check]:
    """All checks of a host, or of one of its services, with its current profile. error: why it cannot be reached."""
    if error is not None:
        return own(snapshot, error)
    slots, failed = [], []
    for one in host.services:
        if service in ("", one.name):
            asked, problem = slot(host, one, profiles.get(one.profile), profiles)
            slots.append(asked)
            failed += [problem] if problem is not None else []
    return [*await ask(commands, snapshot, slots), *failed]


async def environment(commands: Commands, slots: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """What the host read of the slots' environments and its GPUs, by `environment SERVICE` and `gpus`. HostError."""
    answers = await commands.lines("check", {"services": list(slots), "facts": True}, 60.0)
    rows = [raw["facts"] for raw in answers if isinstance(raw.get("facts"), dict)]
    return rows[-1] if rows else {}
