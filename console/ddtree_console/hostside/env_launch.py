"""What a unit's text starts, as the environment checks need it: interpreter, module, user, environment, paths."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddtree_console.domain import launch as launches
from ddtree_console.domain import quoting
from ddtree_console.domain.plan import SECRET_ENV
from ddtree_console.hostside import durable, systemctl
from ddtree_console.hostside.roots import Roots

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MODEL, DRAFT = ("model-path", "model"), ("speculative-draft-model-path", "speculative-draft-model", "draft")
PACKAGES = {"sglang.launch_server": "sglang", "sglang": "sglang", "ddtree_kernels.serve": "ddtree_kernels"}
PROGRAMS = {"sglang": "sglang", "ddtree-wrapper": "ddtree_kernels"}
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*\Z")
_SHEBANG = re.compile(rb"#!\s*(\S+)")


@dataclass(frozen=True)
class Target:
    """A start. python: its interpreter, '' where the program is none. package: the engine's own one, '' if not known.

    module: what `-m` names. env: what systemd hands over, HOME and the like left to the user. flags: by dash name.
    why: why the interpreter or the engine is not known ('' where both are).
    """

    argv: tuple[str, ...] = ()
    python: str = ""
    module: str = ""
    package: str = ""
    user: str = ""
    workdir: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, Any] = field(default_factory=dict)
    memory_max: int | None = None
    why: str = ""

    def value(self, *names: str) -> str:
        """The text of the first of those flags that is set, '' without."""
        found = (self.flags.get(name) for name in names)
        return next((str(v) for v in found if v is not None and v is not True and not isinstance(v, list)), "")

    @property
    def model(self) -> str:
        """The target model, as the command line has it."""
        return self.value(*MODEL)

    @property
    def draft(self) -> str:
        """The draft model."""
        return self.value(*DRAFT)


def manager_environment(roots: Roots) -> dict[str, str]:
    """What the manager gives every service. Where the roots are moved, the PATH that our own tools are found in."""
    if roots.path:
        return {"PATH": os.environ.get("PATH", PATH)}
    done = systemctl.run(["systemctl", "show-environment"], 5)
    found = dict(line.split("=", 1) for line in done.out.decode("utf-8", "replace").splitlines() if "=" in line)
    plain = {key: value for key, value in found.items() if not value.startswith("$'")}
    return {"PATH": PATH, **plain}


def file_environment(path: str) -> dict[str, str]:
    """KEY=value lines of an EnvironmentFile; {} where it cannot be read (a secret one is not missed here)."""
    found: dict[str, str] = {}
    for line in (durable.read_text(Path(path.lstrip("-"))) or "").splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith(("#", ";")):
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            found[name.strip()] = value[1:-1] if quoted else value
    return found


def size(text: str) -> int | None:
    """Bytes of MemoryMax=; None for infinity, a percentage or nothing."""
    match = re.fullmatch(r"(\d+)([KMGT]?)", text.strip().upper())
    return int(match.group(1)) << 10 * " KMGT".index(match.group(2) or " ") if match else None


def which(program: str, path: str) -> str:
    """The program's file: found through PATH where it is a bare name, '' when nowhere."""
    if "/" in program:
        return program
    for folder in path.split(":"):
        candidate = Path(folder, program)
        if folder and candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    return ""


def shebang(path: str) -> str:
    """The Python in a script's first line, '' for any other file."""
    try:
        with Path(path).open("rb") as file:
            match = _SHEBANG.match(file.read(256))
    except OSError:
        return ""
    found = match.group(1).decode("utf-8", "replace") if match else ""
    return found if _PYTHON.match(found.rsplit("/", 1)[-1]) else ""


def target(roots: Roots, text: str) -> Target:
    """The start in that unit text (drop-ins joined). Never raises: what cannot be told is in `why`."""
    launch = launches.read(text)
    unit = launch.unit
    env = manager_environment(roots)
    env.update({name: got[-1].value or "" for name, got in launch.env.items()})
    for path in unit.values("Service", "EnvironmentFile"):
        if SECRET_ENV not in path:
            env.update(file_environment(path))
    for name in " ".join(unit.values("Service", "UnsetEnvironment")).split():
        env.pop(name, None)
    workdir = quoting.unescape_percent(unit.get("Service", "WorkingDirectory") or "")[0].lstrip("-")
    about = Target(
        argv=launch.argv,
        user=unit.get("Service", "User") or "",
        workdir=workdir if workdir.startswith("/") else "/",
        env=env,
        flags={flag.name: flag.value for flag in launch.line.found},
        memory_max=size(unit.get("Service", "MemoryMax") or ""),
        why=launch.problem,
    )
    return about if launch.problem or not launch.argv else _with_program(about, launch.line.module or "")


def _with_program(about: Target, module: str) -> Target:
    program = which(about.argv[0], about.env.get("PATH", PATH))
    words = about.argv
    python = next((w for w in words[:4] if w.startswith("/") and _PYTHON.match(w.rsplit("/", 1)[-1])), "")
    package = PACKAGES.get(module, "") if "-m" in words else ""
    why = ""
    if not python:
        name = words[0].rsplit("/", 1)[-1]
        python = shebang(program) if program else ""
        package = PROGRAMS.get(name, "")
        if not python:
            why = f"{words[0]} is no Python program: what it needs is not known"
    if python and not package:
        why = f"{' '.join(words[:3])} is no engine that is known here: what it imports is not checked"
    return Target(
        about.argv, python, module if "-m" in words else "", package, about.user, about.workdir, about.env,
        about.flags, about.memory_max, why,
    )  # fmt: skip
