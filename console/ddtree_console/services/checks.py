"""Checks of a host: what the console itself sees of the connection, then what the host code finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddtree_console.domain.snapshot import GpuReport, HostSnapshot
from ddtree_console.domain.spec import Host, Profile, Service
from ddtree_console.services import plans
from ddtree_console.services.api import Check
from ddtree_console.services.commands import Commands
from ddtree_console.services.errors import HostError
from ddtree_console.services.wire import build, mapping

SECONDS = 15.0
"""longest that an answer is waited for; the host gives up on each part after three itself."""


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


@dataclass(frozen=True)
class Told:
    """What a host says of itself. facts: what its checks were found from, by `environment SERVICE` and `gpus`."""

    checks: tuple[Check, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def gpus(self) -> GpuReport | None:
        """The GPUs as the check read them; None where it did not."""
        raw = mapping(mapping(self.facts.get("gpus")).get("report"))
        return build(GpuReport, raw) if raw else None


def _check(raw: Mapping[str, Any]) -> Check:
    service = raw.get("service")
    name = str(raw.get("name") or "?")
    return build(Check, raw, name=f"{service}: {name}" if service else name)


async def ask(commands: Commands, snapshot: HostSnapshot, slots: Sequence[Mapping[str, Any]]) -> Told:
    """The console's own checks and the host's, of those slots. Where the host does not answer, one says so."""
    found = own(snapshot, None)
    names = {"privileged", *(check.name for check in found)}
    try:
        answers = await commands.lines("check", {"services": list(slots), "facts": True}, SECONDS)
    except HostError as failed:
        said = Check("host checks", "unknown", f"not known, because {failed.cause}", failed.next_step)
        return Told((*found, said))
    facts: Mapping[str, Any] = next((x for raw in reversed(answers) if (x := mapping(raw.get("facts")))), {})
    more = [_check(raw) for raw in answers if "facts" not in raw]
    return Told((*found, *(c for c in more if c.name not in names)), facts)


async def run(
    commands: Commands,
    host: Host,
    snapshot: HostSnapshot,
    services: Sequence[Service],
    profiles: Mapping[str, Profile],
) -> Told:
    """The checks of those services of a host with their current profiles, in one question."""
    slots, failed = [], []
    for one in services:
        asked, problem = slot(host, one, profiles.get(one.profile), profiles)
        slots.append(asked)
        failed += [problem] if problem is not None else []
    told = await ask(commands, snapshot, slots)
    return Told((*told.checks, *failed), told.facts)
