"""What one key alone cannot tell: values of launch flags, slots that collide, names that lead nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddtree_console.config.resolve import Source
from ddtree_console.config.schema import FleetModel, HostModel
from ddtree_console.config.validate import nearest, said
from ddtree_console.config.yamltree import Document, Path_, Problem, dotted
from ddtree_console.domain.engines import dialects, registry, sglang_launch, wrapper
from ddtree_console.domain.engines.base import DialectError, FlagHelp
from ddtree_console.domain.quoting import check_value
from ddtree_console.domain.render import directive_values
from ddtree_console.domain.spec import Profile

SLOT_FLAGS = ("port",)
SHARE_LIMIT = 0.95


def check_text(document: Document) -> None:
    """No value or key may hold a newline or NUL, or what systemd refuses as text; `verbatim` is text of many lines."""

    def walk(value: Any, path: Path_) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(key, (*path, key))
                walk(item, (*path, key))
        elif isinstance(value, list):
            for i, item in enumerate(value):
                walk(item, (*path, i))
        elif isinstance(value, str) and path != ("verbatim",):
            try:
                check_value(value)
            except ValueError as error:
                document.problem(path, str(error))

    walk(document.data, ())


def _flag(help_: FlagHelp, value: Any, path: Path_, document: Document) -> None:
    number = help_.kind in ("float", "int")
    suffixed = help_.name == "context-length" and isinstance(value, str)
    if value is False:
        return
    if number and (isinstance(value, (bool, list)) or (isinstance(value, str) and not suffixed)):
        document.problem(
            path, f"read {said(value)}, wanted {'a number' if help_.kind == 'float' else 'a whole number'}"
        )
    elif help_.kind == "bool" and value is not True:
        document.problem(path, f"read {said(value)}, wanted true or false")
    elif number:
        try:
            sglang_launch.validate_flag(help_, str(value))
        except ValueError as error:
            document.problem(path, str(error).removeprefix(f"{help_.name}: "))


def check_profile(source: Source) -> None:
    """The file's own values; problems go into its document."""
    document, model = source.document, source.model
    if model is None:
        return
    engine = source.profile.engine if source.profile else model.engine or "sglang"
    known = {f.name: f for f in {"sglang": sglang_launch.FLAGS, "wrapper": wrapper.FLAGS}.get(engine, ())}
    for name, value in (model.flags or {}).items():
        path: Path_ = ("flags", name)
        if name in SLOT_FLAGS:
            document.problem(path, "the port belongs to the service in fleet.yaml, not to a profile")
        elif name in known:
            _flag(known[name], value, path, document)
    for key, directive in (model.unit or {}).items():
        try:
            directive_values(key, directive)
        except ValueError as error:
            document.problem(("unit", key), str(error))
    if model.dialect is not None:
        try:
            dialects.find(model.dialect)
        except DialectError as error:
            document.problem(("dialect",), str(error))


def intent_warning(source: Source) -> str | None:
    """Why the profile's speculative intent cannot be rendered: shown at once, refused when it is deployed."""
    profile, document = source.profile, source.document
    if profile is None:
        return None
    try:
        if profile.engine == "generic" and profile.speculative and profile.speculative.kind != "none":
            raise ValueError("the generic engine cannot spell speculation; write it in command")
        registry.launch_flags(profile)
    except ValueError as error:
        key = "speculative" if ("speculative",) in document.lines else "extends"
        return str(Problem(document.file, document.line((key,)), key, str(error)))
    return None


def _shared(document: Document, host_name: str, host: HostModel, profiles: Mapping[str, Profile]) -> list[str]:
    """Warnings for GPUs of several slots; a problem where the fractions of enabled services do not fit together."""
    warnings: list[str] = []
    for gpu in sorted({gpu for service in host.services.values() for gpu in service.gpus}):
        sharers = {name: service for name, service in host.services.items() if gpu in service.gpus}
        if len(sharers) < 2:
            continue
        shares = {}
        for name, service in sharers.items():
            share = profiles[service.profile].flags.get("mem-fraction-static") if service.profile in profiles else None
            if service.boot and isinstance(share, (int, float)) and not isinstance(share, bool):
                shares[name] = float(share)
        last = list(sharers)[-1]
        path: Path_ = ("hosts", host_name, "services", last, "gpus")
        total = sum(shares.values())
        if len(shares) > 1 and total > SHARE_LIMIT + 1e-9:
            parts = " + ".join(f"{share:g} ({name})" for name, share in shares.items())
            document.problem(
                path, f"GPU {gpu} is shared and its memory fractions sum to {parts} = {total:g}, above 0.95"
            )
        else:
            where = f"{document.file}:{document.line(path)}: {dotted(path)}"
            warnings.append(f"{where}: GPU {gpu} is shared by {', '.join(sharers)}")
    return warnings


def _unique(document: Document, host_name: str, host: HostModel) -> None:
    """Each port and unit once a host, each GPU once a slot."""
    ports: dict[int, str] = {}
    units: dict[str, str] = {}
    for name, service in host.services.items():
        base: Path_ = ("hosts", host_name, "services", name)
        if service.port in ports:
            document.problem((*base, "port"), f"{service.port} is the port of service {ports[service.port]} as well")
        if service.unit in units:
            document.problem((*base, "unit"), f"{service.unit} is the unit of service {units[service.unit]} as well")
        ports.setdefault(service.port, name)
        units.setdefault(service.unit, name)
        if len(set(service.gpus)) != len(service.gpus):
            document.problem((*base, "gpus"), f"names a GPU twice: {service.gpus}")


def _names(document: Document, host_name: str, host: HostModel, sources: Mapping[str, Source]) -> None:
    """Profiles and services that a slot names must exist."""
    for name, service in host.services.items():
        base: Path_ = ("hosts", host_name, "services", name)
        for key, wanted in (("profile", service.profile), ("fallback", service.fallback)):
            if wanted is not None and wanted not in sources:
                known = nearest(wanted, list(sources)) or f"; profiles here: {', '.join(sources) or 'none'}"
                document.problem((*base, key), f"no profile {wanted!r}{known}")
        other = service.fallback_service
        if other is not None and (other not in host.services or other == name):
            there = [n for n in host.services if n != name]
            said_ = "is this service itself" if other == name else f"no service {other!r} on {host_name}"
            document.problem((*base, "fallback_service"), f"{said_}; others here: {', '.join(there) or 'none'}")
        if service.fallback is not None and other is not None:
            document.problem((*base, "fallback_service"), "give fallback or fallback_service, not both")
        for key, seconds in (("hold_s", service.hold_s), ("deadline_s", service.deadline_s)):
            if seconds is not None and seconds < (0 if key == "hold_s" else 1):
                document.problem((*base, key), f"read {seconds:g}, wanted seconds above that")


def _address(document: Document, name: str, host: HostModel, hosts: Mapping[str, HostModel]) -> None:
    path: Path_ = ("hosts", name)
    if host.local and host.address is not None:
        document.problem((*path, "local"), "a host has an address or is local, not both")
    if not host.local and host.address is None:
        document.problem(path, "needs an address, or `local: true`")
    for key in ("address", "user", "jump", "python"):
        value = getattr(host, key)
        if value is not None and (value.startswith("-") or not value or any(c.isspace() for c in value)):
            document.problem((*path, key), f"read {said(value)}, wanted a word without blanks or a dash at its start")
    seen, at = [name], host.jump
    while at is not None and "@" not in at:
        if at not in hosts:
            if at == host.jump:
                document.problem(
                    (*path, "jump"), f"no host {at!r} here{nearest(at, list(hosts))}; or write user@host:port"
                )
            return
        if at in seen:
            document.problem((*path, "jump"), f"goes in a circle: {' -> '.join((*seen, at))}")
            return
        seen.append(at)
        at = hosts[at].jump


def check_fleet(
    document: Document, model: FleetModel, sources: Mapping[str, Source], profiles: Mapping[str, Profile]
) -> list[str]:
    """Problems go into the document; returns warnings."""
    warnings: list[str] = []
    for name, host in model.hosts.items():
        _address(document, name, host, model.hosts)
        _unique(document, name, host)
        _names(document, name, host, sources)
        warnings += _shared(document, name, host, profiles)
    return warnings
