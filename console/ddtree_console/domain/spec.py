"""What an operator declares: hosts, services (slots) and profiles. See FORMATS in docs/PROTOCOL.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Union

Scalar = Union[str, int, float, bool]


@dataclass(frozen=True)
class Secret:
    """A value that stays on the host: the name of an entry in its secrets file."""

    name: str


@dataclass(frozen=True)
class Speculative:
    """What the operator wants of speculation; the engine's dialect turns it into a build's flags.

    kind: none | linear | ddtree. budget: tree nodes besides the root. draft: path or hub name of the draft model.
    """

    kind: str = "none"
    shadow: bool = False
    budget: int | None = None
    draft: str | None = None


@dataclass(frozen=True)
class Profile:
    """A named launch, with `extends` already resolved. It never holds port or GPUs.

    flags keep their order; True is a bare flag, a list of scalars is a flag with several values.
    verbatim: the complete unit text of an adopted unit whose ExecStart could not be modelled, else None.
    """

    name: str
    engine: str = "sglang"
    dialect: str | None = None
    python: str | None = None
    user: str | None = None
    workdir: str | None = None
    model: str | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    env: Mapping[str, str | Secret] = field(default_factory=dict)
    speculative: Speculative | None = None
    must: tuple[str, ...] = ()
    unit: Mapping[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    """generic engine: the whole argv; sglang/wrapper: replaces `PYTHON -m MODULE` when set."""
    extends: str | None = None
    verbatim: str | None = None


@dataclass(frozen=True)
class Service:
    """A slot on a host: owns unit name, port and GPUs (NVML indices)."""

    host: str
    name: str
    unit: str
    port: int
    gpus: tuple[int, ...] = ()
    profile: str = ""
    fallback: str | None = None
    fallback_service: str | None = None
    boot: bool = True
    hold_s: float = 20.0
    deadline_s: float = 600.0

    @property
    def key(self) -> str:
        """HOST/SERVICE, as the commands take it."""
        return f"{self.host}/{self.name}"


@dataclass(frozen=True)
class Host:
    """A machine reached by SSH, or this one (`local`). `roots` moves host paths: demo and tests only."""

    name: str
    address: str = ""
    port: int = 22
    user: str | None = None
    jump: str | None = None
    identity: str | None = None
    python: str | None = None
    local: bool = False
    services: tuple[Service, ...] = ()
    known_hosts: str | None = None
    roots: str | None = None


@dataclass(frozen=True)
class Fleet:
    """Every host and profile of one fleet file. `warnings` are shown, never fatal."""

    path: str
    hosts: tuple[Host, ...] = ()
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    demo: bool = False

    def host(self, name: str) -> Host:
        """The host of that name; KeyError names it."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise KeyError(name)

    def service(self, key: str) -> Service:
        """The service HOST/NAME; KeyError names the key."""
        host_name, _, name = key.partition("/")
        for service in self.host(host_name).services:
            if service.name == name:
                return service
        raise KeyError(key)
