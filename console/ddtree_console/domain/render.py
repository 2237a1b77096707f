"""Profile and slot to a complete unit file. The same input gives the same bytes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddtree_console.domain import adoption, quoting, verbatim
from ddtree_console.domain import launch as launches
from ddtree_console.domain.engines import dialects, registry, sglang_launch, wrapper
from ddtree_console.domain.engines.base import Engine
from ddtree_console.domain.plan import SECRET_ENV
from ddtree_console.domain.spec import Profile, Secret, Service
from ddtree_console.domain.unitfile import DROP_IN, join_drop_ins, split_drop_ins

_UNIT_KEYS = frozenset(
    {
        "Description",
        "Documentation",
        "After",
        "Before",
        "Wants",
        "Requires",
        "Requisite",
        "BindsTo",
        "PartOf",
        "Upholds",
        "Conflicts",
        "OnFailure",
        "OnSuccess",
        "StartLimitIntervalSec",
        "StartLimitBurst",
        "StartLimitAction",
        "DefaultDependencies",
        "RequiresMountsFor",
        "JoinsNamespaceOf",
        "StopWhenUnneeded",
        "AllowIsolate",
        "RefuseManualStart",
        "RefuseManualStop",
        "JobTimeoutSec",
    }
)
_INSTALL_KEYS = frozenset({"WantedBy", "RequiredBy", "UpheldBy", "Alias", "Also", "DefaultInstance"})


@dataclass(frozen=True)
class RenderedUnit:
    """A unit ready for a host.

    command: the launch as one line for a shell, secrets left out. secrets: variable -> name of its entry in the host's
    secrets file. set_flags: what the operator set, the intent spelled out. masked: drop-ins on the host that outrank an
    edit: it has no effect while they exist. argv, env: the same launch as data.
    """

    text: str
    command: str
    secrets: dict[str, str]
    warnings: tuple[str, ...] = ()
    set_flags: Mapping[str, Any] = field(default_factory=dict)
    masked: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


def render_unit(profile: Profile, service: Service, engine: Engine | None = None) -> RenderedUnit:
    """The unit of this profile in this slot.

    ValueError (DialectError for an intent without spelling) names the profile's key that cannot be rendered.
    """
    secrets = {key: value.name for key, value in profile.env.items() if isinstance(value, Secret)}
    if profile.verbatim is not None:
        return _kept(profile, service, secrets)
    command = (engine or registry).command(profile, service)
    env = _environment(profile, service, command.env)
    unit: list[tuple[str, str, str]] = [
        ("Unit", "Description", f"DDTree service {quoting.quote_plain(service.name, 'service')} ({profile.name})"),
        ("Unit", "After", "network-online.target"),
        ("Unit", "Wants", "network-online.target"),
        # a start takes minutes: systemd's own 5 starts in 10 s would let a crash loop run for ever
        ("Unit", "StartLimitIntervalSec", "1800"),
        ("Unit", "StartLimitBurst", "3"),
        # active then means warmed by a real generation; the deployment still waits for a token of its own
        ("Service", "Type", "notify" if profile.engine == "wrapper" and wrapper.notifies(profile) else "simple"),
    ]
    for key, value in (("User", profile.user), ("WorkingDirectory", profile.workdir)):
        if value is not None:
            unit.append(("Service", key, quoting.quote_plain(value, key)))
    for key, value in env.items():
        unit.append(("Service", "Environment", quoting.quote_env(key, value, newline=key in adoption.TQDM)))
    if secrets:
        unit.append(("Service", "EnvironmentFile", SECRET_ENV))
    unit += [
        ("Service", "ExecStart", _exec_start(command.argv)),
        ("Service", "Restart", "on-failure"),
        ("Service", "RestartSec", "10"),
        # the deployment owns the deadline of a start
        ("Service", "TimeoutStartSec", "infinity"),
        # SGLang drains without a limit of its own
        ("Service", "TimeoutStopSec", "60"),
        ("Service", "LimitNOFILE", "65536"),
        ("Install", "WantedBy", "multi-user.target"),
    ]
    text = _text(profile, service, _overridden(unit, profile))
    warnings = (*command.warnings, *_env_warnings(profile, service))
    return _rendered(text, secrets, warnings, _set_flags(profile))


def _rendered(
    text: str,
    secrets: dict[str, str],
    warnings: tuple[str, ...],
    flags: Mapping[str, Any],
    masked: tuple[str, ...] = (),
) -> RenderedUnit:
    """Command and environment are read back from the text, so that what is shown is what will run."""
    launch = launches.read(text)
    env = {key: got[-1].value or "" for key, got in launch.env.items()}
    shown = [f"{key}={shlex.quote(value)}" for key, value in env.items() if key not in adoption.TQDM]
    line = " ".join([*shown, shlex.join(launch.argv)]) if launch.argv else ""
    return RenderedUnit(text, line, secrets, warnings, flags, masked, launch.argv, env)


def _set_flags(profile: Profile) -> dict[str, Any]:
    return {k: v for k, v in registry.launch_flags(profile)[0].items() if v is not None and v is not False}


def _environment(profile: Profile, service: Service, spelled: Mapping[str, str]) -> dict[str, str]:
    env: dict[str, str] = {}
    if service.gpus:
        env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, service.gpus))}
    env.update(adoption.TQDM)
    env.update(spelled)
    for key, value in profile.env.items():
        if isinstance(value, Secret):
            env.pop(key, None)
        else:
            env[key] = quoting.check_value(value, f"environment {key}")
    return env


def _env_warnings(profile: Profile, service: Service) -> tuple[str, ...]:
    if "CUDA_VISIBLE_DEVICES" in profile.env and service.gpus:
        return ("the profile sets CUDA_VISIBLE_DEVICES itself: the slot's GPUs are not used",)
    return ()


def _exec_start(argv: tuple[str, ...]) -> str:
    """The command, one flag a line, so that a diff shows single flags."""
    out = quoting.quote_program(argv[0])
    for word in argv[1:]:
        out += (" \\\n    " if word.startswith("--") else " ") + quoting.quote_arg(word)
    return out


def section_of(key: str) -> tuple[str, str]:
    """(section, key) of a directive in a profile's `unit`; `Unit.After` names its section itself."""
    section, dot, bare = key.partition(".")
    if dot:
        return section, bare
    return ("Unit" if key in _UNIT_KEYS else "Install" if key in _INSTALL_KEYS else "Service"), key


def directive_values(key: str, value: Any) -> tuple[str, ...]:
    """The lines of one directive: a list repeats it, None leaves it out. ValueError for what cannot stand in a line."""
    items = value if isinstance(value, (list, tuple)) else () if value is None else (value,)
    texts = tuple(("yes" if item else "no") if isinstance(item, bool) else str(item) for item in items)
    for text in texts:
        if quoting.check_value(text, f"unit {key}").rstrip().endswith("\\"):
            raise ValueError(f"unit {key}: a backslash at its end would swallow the next line")
        if "\r" in text:
            raise ValueError(f"unit {key} holds a carriage return; a unit file's value must be one line")
    return texts


def _overridden(unit: list[tuple[str, str, str]], profile: Profile) -> list[tuple[str, str, str]]:
    """The directives with the profile's own in the place of ours."""
    for given, value in profile.unit.items():
        section, key = section_of(given)
        lines = [(section, key, text) for text in directive_values(given, value)]
        at = next((i for i, (s, k, _) in enumerate(unit) if (s, k) == (section, key)), len(unit))
        kept = [line for line in unit if line[:2] != (section, key)]
        unit = [*kept[:at], *lines, *kept[at:]]
    return unit


def _text(profile: Profile, service: Service, unit: list[tuple[str, str, str]]) -> str:
    name = quoting.quote_plain(profile.name, "profile name")
    out = f"# Managed by ddtree-console: profile {name}, slot {quoting.quote_plain(service.key, 'slot')}.\n"
    out += "# Change the profile and deploy it; an edit here is found and refused at the next deployment.\n"
    for section in dict.fromkeys(("Unit", "Service", "Install", *(line[0] for line in unit))):
        lines = [f"{key}={value}\n" for where, key, value in unit if where == section]
        if lines:
            out += f"\n[{section}]\n" + "".join(lines)
    return out


def _kept(profile: Profile, service: Service, secrets: dict[str, str]) -> RenderedUnit:
    """An adopted unit: its own text, edited in place. Drop-ins are folded in where an edit touches them, or where the
    unit goes to another slot, which does not have them."""
    joined = verbatim.apply(profile, service)
    for given, value in profile.unit.items():
        joined = verbatim.with_directive(joined, *section_of(given), directive_values(given, value))
    alone, now = split_drop_ins(joined)
    _, before = split_drop_ins(profile.verbatim or "")
    ours = all(f"/{service.unit}.d/" in path or "/service.d/" in path for path, _ in now)
    folded = [part for part, old in zip(now, before) if part != old] if ours else list(now)
    text = alone
    for path, extra in folded:
        text = join_drop_ins(text, ((path, extra),)).replace(DROP_IN, "# from drop-in")
    masked = tuple(path for path, _ in folded) if ours else ()
    adopted = adoption.read(profile.verbatim or "")
    flags = _set_flags(profile)
    warnings = [*adopted.warnings, *dialects.flag_warnings(profile.dialect, flags)]
    warnings += sglang_launch.common_warnings(flags, profile.args)
    warnings += [f"drop-in {path} outranks this edit: it has no effect until that file is removed" for path in masked]
    return _rendered(text, secrets, tuple(warnings), flags, masked)
