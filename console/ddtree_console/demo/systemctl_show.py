"""`systemctl show`: a unit's properties in systemd's own order, in systemd's own spelling."""

from __future__ import annotations

import time

from ddtree_console.demo.service import Service
from ddtree_console.demo.settings import Command

UNSET = "[not set]"


def stamp(seconds: float, style: str) -> str:
    """A wall clock time, empty for never. style: pretty | unix."""
    if not seconds:
        return ""
    if style == "unix":
        return f"@{int(seconds)}"
    # The shims' callers ask in UTC; a sandbox host has no zone of its own.
    return time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def usec(seconds: float) -> str:
    """A time span as systemd prints it: `1min 30s`, `100ms`, infinity."""
    if seconds == float("inf"):
        return "infinity"
    left, parts = round(seconds * 1_000_000), []
    for name, size in (("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1000), ("us", 1)):
        if left >= size:
            parts.append(f"{left // size}{name}")
            left %= size
    return " ".join(parts) or "0"


def _exec(commands: tuple[Command, ...]) -> list[str]:
    return [
        f"{{ path={c.argv[0]} ; argv[]={' '.join(c.argv)} ; ignore_errors={'yes' if c.ignore else 'no'} ; "
        "start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }"
        for c in commands
    ]


def unit_file_state(service: Service) -> str:
    """UnitFileState: enabled, disabled, static, transient, masked, or '' where there is no file."""
    fragment = service.text.fragment
    if service.transient:
        return "transient"
    if not fragment:
        return ""
    if service.text.load == "masked":
        return "masked"
    if service.name in service.machine.enabled():
        return "enabled"
    return "disabled" if service.config.wanted_by else "static"


def properties(service: Service, style: str = "pretty") -> list[tuple[str, str]]:
    """Every property that the sandbox knows, in systemd 252's order; list properties may repeat their name."""
    s, config, stamps = service, service.config, service.stamps
    main = s.exit if s.exec_pid or s.main_pid else None
    cpu = s.cpu_nsec
    rows: list[tuple[str, str]] = [
        ("Type", config.type),
        ("ExitType", "main"),
        ("Restart", config.restart),
        ("NotifyAccess", "none"),
        ("RestartUSec", usec(config.restart_sec)),
        ("TimeoutStartUSec", usec(config.timeout_start)),
        ("TimeoutStopUSec", usec(config.timeout_stop)),
        ("RemainAfterExit", _yes(config.remain)),
        ("MainPID", str(s.main_pid)),
        ("ControlPID", "0"),
        ("Result", s.result),
        ("ReloadResult", "success"),
        ("CleanResult", "success"),
        ("UID", UNSET),
        ("GID", UNSET),
        ("NRestarts", str(s.restarts)),
        ("OOMPolicy", "stop"),
        ("ExecMainStartTimestamp", stamp(stamps.main_start, style)),
        ("ExecMainExitTimestamp", stamp(stamps.main_exit, style)),
        ("ExecMainPID", str(max(s.exec_pid, 0))),
        ("ExecMainCode", str(main.code if main else 0)),
        ("ExecMainStatus", str(main.status if main else 0)),
    ]
    for name, commands in (
        ("ExecStartPre", config.start_pre),
        ("ExecStart", config.start),
        ("ExecStartPost", config.start_post),
        ("ExecStop", config.stop),
        ("ExecStopPost", config.stop_post),
    ):
        rows += [(name, line) for line in _exec(commands)]
    rows += [
        ("Slice", "system.slice"),
        ("ControlGroup", s.control_group),
        ("MemoryCurrent", UNSET),
        ("CPUUsageNSec", UNSET if cpu is None else str(cpu)),
        ("TasksCurrent", UNSET),
        ("Environment", " ".join(f"{k}={v}" for k, v in config.env.items())),
        *(("EnvironmentFiles", f"{p} (ignore_errors={_yes(optional)})") for p, optional in config.env_files),
        ("WorkingDirectory", config.workdir),
        ("KillMode", config.kill_mode),
        ("Id", s.name),
        ("Names", s.name),
        ("WantedBy", " ".join(config.wanted_by) if unit_file_state(s) == "enabled" else ""),
        ("Description", config.description or s.name),
        ("LoadState", s.text.load),
        ("ActiveState", s.active),
        ("FreezerState", "running"),
        ("SubState", s.sub),
        ("FragmentPath", s.text.fragment),
        ("DropInPaths", " ".join(s.text.drop_ins)),
        ("UnitFileState", unit_file_state(s)),
        ("StateChangeTimestamp", stamp(stamps.state_change, style)),
        ("InactiveExitTimestamp", stamp(stamps.inactive_exit, style)),
        ("ActiveEnterTimestamp", stamp(stamps.active_enter, style)),
        ("ActiveExitTimestamp", stamp(stamps.active_exit, style)),
        ("InactiveEnterTimestamp", stamp(stamps.inactive_enter, style)),
        ("CanStart", _yes(s.text.load == "loaded")),
        ("CanStop", "yes"),
        ("NeedDaemonReload", _yes(s.need_reload())),
        ("Transient", _yes(s.transient)),
        ("StartLimitIntervalUSec", usec(config.limit_interval)),
        ("StartLimitBurst", str(config.limit_burst)),
        ("InvocationID", s.invocation),
        ("CollectMode", config.collect),
    ]
    return rows


def _yes(value: bool) -> str:
    return "yes" if value else "no"
