"""Checks of a host: what the console itself sees of the connection, then what the host code finds."""

from __future__ import annotations

from collections.abc import Sequence

from ddtree_console.domain.snapshot import HostSnapshot
from ddtree_console.domain.spec import Host
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


async def run(
    commands: Commands, host: Host, snapshot: HostSnapshot, service: str, error: HostError | None
) -> Sequence[Check]:
    """All checks of a host, or of one of its services. error: why it cannot be reached, None where it can."""
    found = own(snapshot, error)
    if error is not None:
        return found
    slots = [
        {"service": s.name, "unit": s.unit, "port": s.port, "gpus": list(s.gpus)}
        for s in host.services
        if service in ("", s.name)
    ]
    names = {"privileged", *(check.name for check in found)}
    try:
        more = await host_checks(commands, slots)
    except HostError as failed:
        return [*found, Check("host checks", "fail", failed.cause, failed.next_step)]
    return [*found, *(c for c in more if c.name not in names)]
