"""The build that a profile would start, asked of its host; and what that build makes of the profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddtree_console.domain import launch as launches
from ddtree_console.domain.build import Build, FlagMark, build_from_json
from ddtree_console.domain.engines import dialect_build, registry, sglang_launch, wrapper
from ddtree_console.domain.engines.base import DialectError
from ddtree_console.domain.flag_marks import marks
from ddtree_console.domain.plan import SECRET_ENV
from ddtree_console.domain.secrets import is_secret_name
from ddtree_console.domain.spec import Profile
from ddtree_console.services.commands import Commands

SECONDS = 25.0
INTENT = "speculative"
"""name of the mark of an intent that the build cannot spell."""


def request(profile: Profile) -> dict[str, Any]:
    """What `inspect` is asked: the interpreter, user and Environment of the unit. Values of secrets stay here."""
    env = {k: v for k, v in profile.env.items() if isinstance(v, str) and not is_secret_name(k)}
    command, python = list(profile.command), profile.python or ""
    user, workdir = _of_unit(profile, "User", profile.user), _of_unit(profile, "WorkingDirectory", profile.workdir)
    files: list[str] = []
    if profile.verbatim is not None:
        read = launches.read(profile.verbatim)
        command = command or list(read.argv)
        python = python or read.line.python or ""
        told = {name: found[-1].value for name, found in read.env.items() if found and not is_secret_name(name)}
        env = {**{k: v for k, v in told.items() if v is not None}, **env}
        files = [f for f in read.unit.values("Service", "EnvironmentFile") if SECRET_ENV not in f]
        user, workdir = user or _directive(read, "User"), workdir or _directive(read, "WorkingDirectory")
    if not python and not command:
        python = sglang_launch.PYTHON
    if profile.engine == "wrapper" and not command:
        command = [python, "-m", wrapper.MODULE]
    return {
        "engine": profile.engine,
        "python": python,
        "user": user,
        "workdir": workdir.lstrip("-"),
        "env": env,
        "pythonpath": env.get("PYTHONPATH", ""),
        "command": command,
        "environment_files": files,
    }


def _of_unit(profile: Profile, key: str, stated: str | None) -> str:
    """A directive: the profile's own `unit` outranks what the profile says elsewhere."""
    value = profile.unit.get(key, profile.unit.get(f"Service.{key}"))
    return str(value) if isinstance(value, str) else stated or ""


def _directive(read: launches.Launch, key: str) -> str:
    found = read.unit.assigned("Service", key)
    return found[-1].value.strip() if found else ""


async def inspect(commands: Commands, profile: Profile) -> Build:
    """What the host says of it; parts that are not known are `problems`. HostError where the host cannot be asked."""
    return build_from_json(await commands.call("inspect", request(profile), SECONDS))


def fit(profile: Profile, build: Build) -> Profile:
    """The profile with its intent in this build's dialect. DialectError says why the build cannot."""
    return dialect_build.fit(profile, build)


def flag_marks(profile: Profile, build: Build) -> tuple[FlagMark, ...]:
    """A mark for each option that the profile's launch would have in that build, the spelled intent included."""
    refused: tuple[FlagMark, ...] = ()
    flags: Mapping[str, Any] = profile.flags
    try:
        flags = registry.launch_flags(fit(profile, build))[0]
    except (DialectError, ValueError) as error:
        refused = (FlagMark(INTENT, "unknown", "", str(error)),)
    return (*refused, *marks(flags, profile.args, build))
