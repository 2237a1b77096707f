"""Two environments side by side: versions, CUDA, kernels, GPUs, patched files; and what B has that A needs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddtree_console.domain.build import Build
from ddtree_console.domain.spec import Profile, Service
from ddtree_console.services import builds, checks
from ddtree_console.services.errors import HostError
from ddtree_console.services.hostwatch import HostWatch
from ddtree_console.services.wire import mapping

ABSENT = "–"


@dataclass(frozen=True)
class Row:
    """One thing of both. part: host | cuda | package | patched. '–' where a side does not have it."""

    part: str
    name: str
    a: str
    b: str

    @property
    def differs(self) -> bool:
        """Whether the two sides are not alike."""
        return self.a != self.b


@dataclass(frozen=True)
class Offer:
    """A package that A asks for and does not have, and B has. pin: what A wants of it."""

    name: str
    pin: str
    version: str


@dataclass(frozen=True)
class Side:
    """One service's environment. needs: package or module -> wanted version, of what is not met there."""

    key: str
    facts: Mapping[tuple[str, str], str]
    packages: Mapping[str, str]
    needs: Mapping[str, str]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """rows: all of them; offers: what B has that A needs; problems: what of either is not known."""

    a: str
    b: str
    rows: tuple[Row, ...]
    offers: tuple[Offer, ...]
    problems: tuple[str, ...] = ()


def _kernel(raw: Mapping[str, Any]) -> str:
    archs = " ".join(f"sm_{s}" for s in raw.get("sass") or ())
    return ", ".join(x for x in (str(raw.get("version") or "?"), f"CUDA {raw.get('cuda') or '?'}", archs) if x)


def _facts(told: checks.Told, service: Service, build: Build) -> dict[tuple[str, str], str]:
    """(part, name) -> text, without packages."""
    env, gpus = mapping(told.facts.get(f"environment {service.name}")), mapping(told.facts.get("gpus"))
    cuda = mapping(env.get("cuda"))
    report = told.gpus
    found = {("host", c.name): c.evidence for c in told.checks if c.name == "systemd"}
    found[("host", "driver")] = str(gpus.get("driver") or "")
    found[("host", "driver CUDA")] = str(gpus.get("cuda") or "")
    names = [g.name for g in report.gpus if g.index in service.gpus] if report is not None else []
    found[("host", "GPUs")] = ", ".join(f"{names.count(n)}x {n}" for n in dict.fromkeys(names))
    archs = mapping(gpus.get("archs"))
    mine = dict.fromkeys(f"sm_{archs[str(i)]}" for i in service.gpus if archs.get(str(i)))
    found[("host", "GPU architecture")] = ", ".join(mine)
    found[("cuda", "python")] = str(env.get("python") or "")
    found[("cuda", "torch's CUDA")] = str(cuda.get("cuda") or "")
    for kernel in cuda.get("kernels") or ():
        raw = mapping(kernel)
        name = " ".join(x for x in (str(raw.get("package")), str(raw.get("variant") or "")) if x)
        found[("cuda", name)] = _kernel(raw)
    for lib in cuda.get("libraries") or ():
        raw = mapping(lib)
        found[("cuda", str(raw.get("name")))] = f"{raw.get('path')} ({raw.get('how')})"
    for path in build.patched:
        found[("patched", path)] = "patched"
    return {key: text for key, text in found.items() if text}


async def side(watch: HostWatch, service: Service, profile: Profile, profiles: Mapping[str, Profile]) -> Side:
    """Asks one host; HostError where it cannot be reached."""
    await watch.link.ready("compare")
    asked, failed = checks.slot(watch.host, service, profile, profiles)
    if failed is not None:
        raise HostError(service.key, "compare", failed.evidence, failed.remedy, 2)
    told, build = await asyncio.gather(checks.ask(watch.commands, watch.snapshot(), [asked]), _build(watch, profile))
    env = mapping(told.facts.get(f"environment {service.name}"))
    unknown = [f"{service.key}: {c.evidence}" for c in told.checks if c.state == "unknown" and "interpreter" in c.name]
    missing = [] if env else [f"{service.key}: its environment is not known: see `ddtree-console check {service.key}`"]
    return Side(
        service.key,
        _facts(told, service, build),
        {str(k): str(v) for k, v in mapping(env.get("packages")).items()},
        {str(k): str(v) for k, v in mapping(env.get("needs")).items()},
        (*unknown, *missing, *(f"{service.key}: {p}" for p in build.problems)),
    )


async def _build(watch: HostWatch, profile: Profile) -> Build:
    try:
        return await builds.inspect(watch.commands, profile)
    except HostError as error:
        return Build(problems=(f"patched files are not known, because {error.cause}",))


def rows(a: Side, b: Side) -> Sequence[Row]:
    """Everything that either has, in order: host, CUDA, packages, patched files."""
    keys = list(dict.fromkeys([*a.facts, *b.facts]))
    plain = [
        Row(part, name, a.facts.get((part, name), ABSENT), b.facts.get((part, name), ABSENT)) for part, name in keys
    ]
    names = sorted({*a.packages, *b.packages})
    versions = [Row("package", name, a.packages.get(name, ABSENT), b.packages.get(name, ABSENT)) for name in names]
    order = ("host", "cuda", "package", "patched")
    return sorted([*plain, *versions], key=lambda row: order.index(row.part))


def offers(a: Side, b: Side) -> Sequence[Offer]:
    """What A asks for and does not have, as far as B has it. A module is found by its package's like name."""
    have = {name.replace("_", "-").lower(): version for name, version in b.packages.items()}
    found = []
    for name, pin in a.needs.items():
        version = have.get(name.replace("_", "-").lower())
        if version is not None and a.packages.get(name) != version:
            found.append(Offer(name, pin, version))
    return found


def compare(a: Side, b: Side) -> Comparison:
    """Both sides, told as one."""
    return Comparison(a.key, b.key, tuple(rows(a, b)), tuple(offers(a, b)), (*a.problems, *b.problems))
