"""A fleet file and the profiles beside it as domain objects; every problem found is told at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ddtree_console.config import checks, resolve, validate, yamltree
from ddtree_console.config.resolve import Source
from ddtree_console.config.schema import FleetModel, HostModel, ProfileModel
from ddtree_console.config.yamltree import ConfigError, Document, Problem
from ddtree_console.domain.spec import Fleet, Host, Profile, Service

__all__ = ["ConfigError", "Problem", "find_fleet", "load_fleet", "load_profiles", "searched"]

FLEET = "fleet.yaml"


def places(explicit: str | Path | None, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> list[Path]:
    """Where a fleet file is looked for, best first; what was named explicitly is the only place."""
    env = os.environ if env is None else env
    if explicit:
        return [Path(explicit)]
    if env.get("DDTREE_FLEET"):
        return [Path(env["DDTREE_FLEET"])]
    home = Path(env.get("HOME") or "~").expanduser()
    config = env.get("XDG_CONFIG_HOME", "")
    base = Path(config) if config.startswith("/") else home / ".config"
    return [(cwd or Path.cwd()) / "profiles" / FLEET, base / "ddtree-console" / FLEET]


def find_fleet(
    explicit: str | Path | None = None, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Path | None:
    """The fleet file of --fleet, $DDTREE_FLEET, ./profiles, the user's config folder; None when there is none.

    A file that was named (the first two) is returned as it is, so that loading it says why it cannot be read.
    """
    found = places(explicit, env, cwd)
    if len(found) == 1:
        return found[0] / FLEET if found[0].is_dir() else found[0]
    return next((path for path in found if path.is_file()), None)


def searched(env: Mapping[str, str] | None = None, cwd: Path | None = None) -> tuple[str, ...]:
    """What the search looked at, for a message."""
    return ("--fleet", "$DDTREE_FLEET", *(str(path) for path in places(None, env, cwd)))


def _is_fleet(document: Document) -> bool:
    return isinstance(document.data, dict) and "hosts" in document.data


def read_sources(folder: Path, fleet: Path | None = None) -> dict[str, Source]:
    """The profiles of a folder by name, read and checked one by one; other fleet files there are left alone."""
    sources: dict[str, Source] = {}
    try:
        files = sorted(p for p in folder.iterdir() if p.suffix in (".yaml", ".yml") and not p.name.startswith("."))
    except OSError:
        files = []
    for path in files:
        if fleet is not None and path.name == fleet.name:
            continue
        document = yamltree.read(path)
        if _is_fleet(document):
            continue
        if path.stem in sources:
            document.problem((), f"profile {path.stem!r} is in {sources[path.stem].document.file} as well")
            sources[path.name] = Source(path.name, document, None)
            continue
        model = validate.check(ProfileModel, document)
        checks.check_text(document)
        sources[path.stem] = Source(path.stem, document, model if isinstance(model, ProfileModel) else None)
    return sources


def _profiles(sources: Mapping[str, Source]) -> dict[str, Profile]:
    profiles = resolve.resolve_all(sources)
    for source in sources.values():
        checks.check_profile(source)
    return profiles


def _raise(documents: list[Document]) -> None:
    problems = [problem for document in documents for problem in sorted(document.problems)]
    if problems:
        raise ConfigError(tuple(dict.fromkeys(problems)))


def load_profiles(folder: Path) -> dict[str, Profile]:
    """The profiles of a folder, `extends` resolved; ConfigError with all problems."""
    sources = read_sources(folder, Path(FLEET))
    profiles = _profiles(sources)
    _raise([source.document for source in sources.values()])
    return profiles


def load_fleet(path: str | Path) -> Fleet:
    """The fleet in that file with the profiles beside it; ConfigError with all problems, `file:line: key: reason`."""
    path = Path(path)
    document = yamltree.read(path)
    model = validate.check(FleetModel, document) if document.data is not None or not document.problems else None
    checks.check_text(document)
    sources = read_sources(path.parent, path)
    profiles = _profiles(sources)
    warnings: list[str] = []
    if isinstance(model, FleetModel):
        warnings = checks.check_fleet(document, model, sources, profiles)
    _raise([document, *(source.document for source in sources.values())])
    assert isinstance(model, FleetModel)
    for source in sources.values():
        warning = checks.intent_warning(source)
        warnings += [warning] if warning else []
    hosts = tuple(_host(name, host) for name, host in model.hosts.items())
    return Fleet(path=str(path), hosts=hosts, profiles=profiles, warnings=tuple(warnings))


def _host(name: str, host: HostModel) -> Host:
    services = tuple(
        Service(
            host=name,
            name=key,
            unit=service.unit,
            port=service.port,
            gpus=tuple(service.gpus),
            profile=service.profile,
            fallback=service.fallback,
            fallback_service=service.fallback_service,
            boot=service.boot,
            hold_s=float(service.hold_s) if service.hold_s is not None else Service.hold_s,
            deadline_s=float(service.deadline_s) if service.deadline_s is not None else Service.deadline_s,
        )
        for key, service in host.services.items()
    )
    return Host(
        name=name,
        address=host.address or "",
        port=host.port or Host.port,
        user=host.user,
        jump=host.jump,
        identity=host.identity,
        python=host.python,
        local=host.local,
        known_hosts=host.known_hosts,
        services=services,
    )
