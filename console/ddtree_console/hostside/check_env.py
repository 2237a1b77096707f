"""The environment that a unit starts in, seen as its user: interpreter, modules, requirements, CUDA, models, caches."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ddtree_console.hostside import (
    as_user,
    check_jit,
    check_model,
    check_room,
    env_cuda,
    env_imports,
    env_packages,
    env_python,
)
from ddtree_console.hostside.check_finding import Finding, safely
from ddtree_console.hostside.env_launch import Target
from ddtree_console.hostside.env_python import Python
from ddtree_console.hostside.roots import Roots

SCAN_S = 1.2
LATER = {
    "sglang": ("sglang.srt.entrypoints.http_server", "sglang.srt.managers.scheduler",
               "sglang.srt.managers.detokenizer_manager"),
    "ddtree_kernels": ("ddtree_kernels.serve.__main__",),
}  # fmt: skip
"""what a start imports inside a function: its processes' own modules."""
DISTRIBUTIONS = {"sglang": "sglang", "ddtree_kernels": "ddtree-console"}


def interpreter(about: Target, python: Python | None, why: str) -> Finding:
    """The interpreter and its virtual environment."""
    path = about.python
    if python is None:
        link = check_model.blocked(Path(path))
        remedy = "make the environment again" if link else "run it as this user, and see what it says"
        return Finding("interpreter", "fail", f"as {about.user or 'root'}: {link or why}", remedy)
    said = f"{path} is Python {python.version}"
    if python.prefix == python.base:
        return Finding("interpreter", "ok", f"{said}, no virtual environment")
    short = ".".join(python.version.split(".")[:2])
    libs = [p.name for p in Path(python.prefix, "lib").glob("python3*") if (p / "site-packages").is_dir()]
    if libs and f"python{short}" not in libs:
        why = f"{said}, but {python.prefix} was made for {', '.join(sorted(libs))}: none of its packages is seen"
        return Finding("interpreter", "fail", why, "make the environment again with this Python")
    return Finding("interpreter", "ok", f"{said} in {python.prefix}")


def _shell_free(python: Python) -> str:
    return f"{python.prefix}/bin/python -m pip install"


def modules(about: Target, python: Python, until: float, lost: list[env_imports.Missing]) -> Iterator[Finding]:
    """Modules that the build imports while it starts; those that are missing go into `lost`."""
    name = "modules"
    spec = python.specs.get(about.package)
    if spec is None or "error" in spec:
        why = str(spec["error"]) if spec else "no such module on its search path"
        yield Finding(name, "fail", f"{about.package}: {why}", f"{_shell_free(python)} {about.package}")
        return
    folders = list(spec.get("folders") or ())
    if not folders:
        yield Finding(name, "unknown", f"not known, because {about.package} is {spec.get('origin') or 'no folder'}")
        return
    walker = env_imports.Walker(about.package, folders[0], until)
    found = walker.start(about.module or about.package)
    for module in LATER.get(about.package, ()):
        if walker.folders.module(folders[0], module.split(".")[1:]):
            found = walker.start(module)
    outside = [n for n in found.outside if n not in python.standard and n not in sys.builtin_module_names]
    absent = [n for n in outside if not any(walker.folders.module(folder, [n]) for folder in python.path)]
    lost += found.missing
    if absent:
        again = env_python.ask_here(about, absent)
        for one in absent:
            spec = again.specs.get(one)
            confirmed = walker.confirmed(one) if spec is None else None
            if confirmed is not None:
                lost.append(confirmed)
    if lost:
        shown = ", ".join(f"{m.name} ({m.by}:{m.line})" for m in lost[:4])
        own = [m for m in lost if m.name.split(".")[0] == about.package]
        names = " ".join(dict.fromkeys(m.name.split(".")[0] for m in lost if m not in own))
        remedy = f"{_shell_free(python)} {names}" if names else f"install {about.package} again: it is not whole"
        yield Finding(name, "fail", f"missing: {shown}", remedy)
    elif not found.whole:
        yield Finding(name, "unknown", f"none missing in {found.files} files; the time was up before the rest")
    else:
        yield Finding(
            name, "ok", f"{len(outside)} packages that {found.files} files of {about.package} import are there"
        )


@dataclass(frozen=True)
class Unmet:
    """A requirement that is not met. have: the installed version, '' for none."""

    name: str
    pin: str
    have: str = ""

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.name} is {self.have}, not {self.pin}" if self.have else f"{self.name}{self.pin} is not installed"


def unmet(own: env_packages.Package, python: str, packages: Mapping[str, env_packages.Package]) -> list[Unmet]:
    """What a distribution's metadata asks for and does not get; extras are nobody's duty."""
    known = {
        "python_version": ".".join(python.split(".")[:2]),
        "python_full_version": python,
        "sys_platform": "linux",
        "os_name": "posix",
        "platform_system": "Linux",
        "platform_machine": os.uname().machine,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    found: list[Unmet] = []
    for need in env_packages.needs(own):
        if "extra" in need.marker or not env_packages.holds(need.marker, known):
            continue
        have = packages.get(need.name)
        if have is None or not env_packages.satisfies(have.version, need.pin):
            found.append(Unmet(need.name, need.pin, have.version if have is not None else ""))
    return found


def requirements(
    about: Target, python: Python, packages: Mapping[str, env_packages.Package], off: list[Unmet]
) -> Iterator[Finding]:
    """Versions against what the engine's own metadata asks for; what is not met goes into `off`."""
    own = packages.get(DISTRIBUTIONS.get(about.package, ""))
    if own is None:
        return
    if not env_packages.metadata(own):
        why = f"{own.info} has no METADATA: it is half installed"
        yield Finding("requirements", "fail", why, f"{_shell_free(python)} --force-reinstall {own.name}")
        return
    off += unmet(own, python.version, packages)
    if off:
        more = f" and {len(off) - 4} more" if len(off) > 4 else ""
        why = f"{own.name} {own.version}: {'; '.join(one.text for one in off[:4])}{more}"
        wanted = " ".join(f"'{one.name}{one.pin}'" for one in off[:4])
        yield Finding("requirements", "warn", why, f"{_shell_free(python)} {wanted}")
    else:
        yield Finding("requirements", "ok", f"as {own.name} {own.version} asks for")


def _inside(roots: Roots, about: Target, python: Python, moved: bool) -> list[dict[str, Any]]:
    """Everything that is read as the unit's user; rows as `parallel` carries them."""
    until = time.monotonic() + SCAN_S
    env = {**about.env, **({"HOME": os.environ.get("HOME", "")} if about.user else {})}
    packages = env_packages.installed(python.path)
    rows: list[dict[str, Any]] = []
    if about.package:
        cuda = env_cuda.look(env, about.workdir, python.path, packages)
        versions = {name: package.version for name, package in packages.items()}
        if cuda.torch:
            versions["torch"] = cuda.torch
        lost: list[env_imports.Missing] = []
        off: list[Unmet] = []
        found = [
            *safely("modules", lambda: modules(about, python, until, lost)),
            *safely("requirements", lambda: requirements(about, python, packages, off)),
            *safely("jit locks", lambda: check_jit.check(roots, env)),
        ]
        needs = {**{m.name.split(".")[0]: "" for m in lost}, **{one.name: one.pin for one in off}}
        facts = {"cuda": asdict(cuda), "packages": versions, "python": python.version, "needs": needs}
        rows.append({"facts": facts})
        rows += [{"finding": asdict(one)} for one in found]
    if about.package and not moved:
        # another program may make of --model what it likes
        rows += [{"finding": asdict(one)} for one in safely("model", lambda: check_model.check(about, env))]
    return rows


def look(roots: Roots, about: Target, service: str) -> Iterator[dict[str, Any]]:
    """Rows {"finding": ..} and {"facts": ..} of one slot's environment."""

    def row(one: Finding) -> dict[str, Any]:
        return {"finding": {**asdict(one), "service": service}}

    for one in safely("host memory", lambda: check_room.check(roots, about, about.env)):
        yield row(one)
    moved = bool(roots.path)
    if moved and about.package:
        yield row(Finding("model", "unknown", "not known, because this host's paths are moved (--roots)"))
    if not about.python:
        yield row(Finding("interpreter", "unknown", f"not known, because {about.why or 'the unit names none'}"))
        return
    if about.why:
        yield row(Finding("modules", "unknown", f"not known, because {about.why}"))
    try:
        python = env_python.ask(about, [about.package] if about.package else [])
    except as_user.NotKnown as error:
        state = interpreter(about, None, str(error))
        yield row(state)
        return
    yield row(interpreter(about, python, ""))
    try:
        rows = as_user.call(about.user, lambda: {"rows": _inside(roots, about, python, moved)}, 20.0)["rows"]
    except as_user.NotKnown as error:
        yield row(Finding("environment", "unknown", f"not known, because {error}"))
        return
    for item in rows:
        if "finding" in item:
            yield {"finding": {**item["finding"], "service": service}}
        else:
            yield item
