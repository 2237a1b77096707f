"""The transport of a host: this machine, or SSH, through a jump where the fleet names one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ddtree_console.domain.spec import Fleet, Host
from ddtree_console.transport.base import Transport, TransportError


def jump_of(fleet: Fleet, host: Host) -> Host | None:
    """The host to go through: `jump` names one of the fleet, or is user@host:port. It shares the known_hosts file."""
    if not host.jump:
        return None
    for other in fleet.hosts:
        if other.name == host.jump:
            if other.local or other.jump:
                cause = "is this machine" if other.local else "has a jump of its own"
                step = "name a host that is reached directly, or use ProxyJump in ~/.ssh/config"
                raise TransportError("config", host.name, f"jump through {other.name}", f"it {cause}", step)
            return replace(other, known_hosts=other.known_hosts or host.known_hosts)
    user, _, rest = host.jump.rpartition("@")
    address, colon, port = rest.rpartition(":")
    if not (colon and port.isdigit()):
        address, port = rest, "22"
    return Host(
        host.jump, address.strip("[]"), int(port), user or None, identity=host.identity, known_hosts=host.known_hosts
    )


def opener(fleet: Fleet) -> Callable[[Host], Transport]:
    """What opens hosts of that fleet. SSH is imported at the first use."""

    def open_host(host: Host) -> Transport:
        if host.local:
            from ddtree_console.transport.local import LocalTransport

            return LocalTransport(host)
        from ddtree_console.transport.ssh import SshTransport

        return SshTransport(host, jump_of(fleet, host))

    return open_host
