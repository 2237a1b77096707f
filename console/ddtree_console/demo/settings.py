"""What a unit's text means for running it: commands, environment, restart policy, limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ddtree_console.demo import unitload
from ddtree_console.demo.unitload import UnitText

_SECTION = "Service"


@dataclass(frozen=True)
class Command:
    """One Exec line. ignore: its failure does not count (`-`). plain: `$` is not expanded (`:`)."""

    argv: tuple[str, ...]
    ignore: bool = False
    plain: bool = False


@dataclass(frozen=True)
class Settings:
    """A service as systemd would run it. Times in seconds, inf where there is no limit."""

    description: str = ""
    type: str = "simple"
    start: tuple[Command, ...] = ()
    start_pre: tuple[Command, ...] = ()
    start_post: tuple[Command, ...] = ()
    stop: tuple[Command, ...] = ()
    stop_post: tuple[Command, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    env_files: tuple[tuple[str, bool], ...] = ()
    workdir: str = ""
    workdir_optional: bool = False
    restart: str = "no"
    restart_sec: float = 0.1
    prevent: frozenset[str] = frozenset()
    success: frozenset[str] = frozenset()
    limit_interval: float = 10.0
    limit_burst: int = 5
    timeout_start: float = 90.0
    timeout_stop: float = 90.0
    kill_mode: str = "control-group"
    kill_signal: str = "SIGTERM"
    remain: bool = False
    oom_score_adj: int | None = None
    collect: str = "inactive"
    wanted_by: tuple[str, ...] = ()
    identifier: str = ""


def command(text: str, specifiers: Mapping[str, str]) -> Command:
    """An Exec line's command; the prefixes that only concern privileges are accepted and do nothing here."""
    argv = [unitload.specifiers(word, specifiers) for word in unitload.words(text)]
    program = argv[0].lstrip("@-:+!")
    prefix = argv[0][: len(argv[0]) - len(program)]
    argv = [program, *argv[1:]]
    if "@" in prefix and len(argv) > 1:
        # `@/path name arg`: the second word is argv[0], which no service of a sandbox asks for.
        argv = [program, *argv[2:]]
    return Command(tuple(argv), "-" in prefix, ":" in prefix)


def _truth(text: str) -> bool:
    return text.lower() in ("1", "yes", "y", "true", "t", "on")


def _span(unit: UnitText, section: str, key: str, default: float) -> float:
    found = unitload.span(unit.last(section, key))
    return default if found is None else found


def _number(text: str, default: int) -> int:
    return int(text) if text.lstrip("-").isdigit() else default


def of(unit: UnitText, specifiers: Mapping[str, str]) -> Settings:
    """The settings of a loaded unit."""

    def commands(key: str) -> tuple[Command, ...]:
        return tuple(command(text, specifiers) for text in unit.all(_SECTION, key))

    env: dict[str, str] = {}
    for text in unit.all(_SECTION, "Environment"):
        for word in unitload.words(text):
            name, sep, value = unitload.specifiers(word, specifiers).partition("=")
            if sep:
                env[name] = value
    both = unit.last(_SECTION, "TimeoutSec")
    start_default = unitload.span(both) if both else 90.0
    workdir = unitload.specifiers(unit.last(_SECTION, "WorkingDirectory"), specifiers)
    score = unit.last(_SECTION, "OOMScoreAdjust")
    first = "oneshot" if not unit.last(_SECTION, "Type") and not unit.all(_SECTION, "ExecStart") else "simple"
    kind = unit.last(_SECTION, "Type", first)
    return Settings(
        description=unitload.specifiers(unit.last("Unit", "Description"), specifiers),
        type=kind,
        start=commands("ExecStart"),
        start_pre=commands("ExecStartPre"),
        start_post=commands("ExecStartPost"),
        stop=commands("ExecStop"),
        stop_post=commands("ExecStopPost"),
        env=env,
        env_files=tuple(
            (unitload.specifiers(text.removeprefix("-"), specifiers), text.startswith("-"))
            for text in unit.all(_SECTION, "EnvironmentFile")
        ),
        workdir=workdir.removeprefix("-"),
        workdir_optional=workdir.startswith("-"),
        restart=unit.last(_SECTION, "Restart", "no"),
        restart_sec=_span(unit, _SECTION, "RestartSec", 0.1),
        prevent=frozenset(" ".join(unit.all(_SECTION, "RestartPreventExitStatus")).split()),
        success=frozenset(" ".join(unit.all(_SECTION, "SuccessExitStatus")).split()),
        limit_interval=_span(unit, "Unit", "StartLimitIntervalSec", _span(unit, _SECTION, "StartLimitInterval", 10.0)),
        limit_burst=_number(unit.last("Unit", "StartLimitBurst", unit.last(_SECTION, "StartLimitBurst")), 5),
        timeout_start=_span(
            unit, _SECTION, "TimeoutStartSec", float("inf") if kind == "oneshot" else start_default or 90.0
        ),
        timeout_stop=_span(unit, _SECTION, "TimeoutStopSec", start_default or 90.0),
        kill_mode=unit.last(_SECTION, "KillMode", "control-group"),
        kill_signal=unit.last(_SECTION, "KillSignal", "SIGTERM"),
        remain=_truth(unit.last(_SECTION, "RemainAfterExit")),
        oom_score_adj=_number(score, 0) if score else None,
        collect=unit.last("Unit", "CollectMode", "inactive"),
        wanted_by=tuple(" ".join(unit.all("Install", "WantedBy")).split()),
        identifier=unit.last(_SECTION, "SyslogIdentifier"),
    )


def environment_file(path: str) -> dict[str, str]:
    """NAME=value lines of an EnvironmentFile; OSError when it cannot be read. Quotes around a value are taken off."""
    env: dict[str, str] = {}
    for line in Path(path).read_text("utf-8", "surrogateescape").splitlines():
        name, sep, value = line.strip().partition("=")
        if not sep or name.startswith(("#", ";")):
            continue
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        env[name.strip()] = value
    return env


def environment(settings: Settings, base: Mapping[str, str], bin_folder: str) -> dict[str, str]:
    """The process environment. The shims stay first in PATH whatever the unit sets. OSError for a missing file."""
    env = {**base, **settings.env}
    for path, optional in settings.env_files:
        try:
            env.update(environment_file(path))
        except OSError:
            if not optional:
                raise
    own = env.get("PATH", "")
    if own.split(os.pathsep)[0] != bin_folder:
        env["PATH"] = bin_folder + os.pathsep + own
    return env
