"""The sandbox's `systemctl`: the verbs that host code and operators use, with systemd 252's words and exit codes."""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import Awaitable, Callable

from ddtree_console.demo import systemctl_show, unitload
from ddtree_console.demo.control import Call
from ddtree_console.demo.options import Parsed, Usage, parse
from ddtree_console.demo.service import Service
from ddtree_console.demo.supervisor import Supervisor
from ddtree_console.demo.unit_processes import signal_number

VERSION = "systemd 252 (ddtree-console sandbox)\n-PAM"
_VALUED = ("property", "type", "state", "signal", "kill-who", "kill-whom", "lines", "output", "timestamp", "job-mode")
_SWITCHES = (
    *("no-block", "no-pager", "no-legend", "no-ask-password", "no-wall", "all", "full", "plain", "quiet", "value"),
    *("runtime", "force", "now", "system", "version", "wait", "failed"),
)
_SHORT = {"p": "property", "t": "type", "s": "signal", "n": "lines", "o": "output", "P": "only", "a": "all"}
_SHORT |= {"l": "full", "q": "quiet", "f": "force"}


class Systemctl:
    """One host's systemctl. reboot: what the verb of that name calls."""

    def __init__(self, machine: Supervisor, reboot: Callable[[], None]) -> None:
        self._machine, self._reboot = machine, reboot
        self._verbs: dict[str, Callable[[Call, Parsed, list[str]], Awaitable[int]]] = {
            "show": self._show,
            "start": self._start,
            "restart": self._restart,
            "stop": self._stop,
            "kill": self._kill,
            "reset-failed": self._reset_failed,
            "daemon-reload": self._reload,
            "enable": self._enable,
            "disable": self._disable,
            "is-active": self._is_active,
            "is-failed": self._is_failed,
            "is-enabled": self._is_enabled,
            "is-system-running": self._is_running,
            "cat": self._cat,
            "list-units": self._list_units,
            "list-unit-files": self._list_files,
            "list-jobs": self._list_jobs,
            "status": self._status,
            "reboot": self._do_reboot,
        }

    async def __call__(self, call: Call) -> int:
        """The exit status."""
        try:
            given = parse(call.args, (*_VALUED, "only"), _SWITCHES, _SHORT)
        except Usage as error:
            call.err(f"systemctl: {error}")
            return 1
        if given.has("version"):
            call.out(VERSION)
            return 0
        verb, *names = given.words or ["list-units"]
        if verb not in self._verbs:
            call.err(f"Unknown command verb {verb}.")
            return 1
        return await self._verbs[verb](call, given, [mangle(name) for name in names])

    # --- looking

    async def _show(self, call: Call, given: Parsed, names: list[str]) -> int:
        only = [*given.listed("property"), *given.listed("only")]
        bare = given.has("value") or given.has("only")
        style = "unix" if given.last("timestamp") == "unix" else "pretty"
        self._machine.tracker.scan()
        if not names:
            self._print(call, self._manager(), only, bare)
            return 0
        for index, name in enumerate(names):
            if index:
                call.out("")
            self._print(call, systemctl_show.properties(self._machine.unit(name), style), only, bare)
        return 0

    def _print(self, call: Call, rows: list[tuple[str, str]], only: list[str], bare: bool) -> None:
        for name, value in rows:
            if only and name not in only:
                continue
            call.out(value if bare else f"{name}={value}")

    def _manager(self) -> list[tuple[str, str]]:
        failed = sum(s.active == "failed" for s in self._machine.units.values())
        return [
            ("Version", "252 (ddtree-console sandbox)"),
            ("NFailedUnits", str(failed)),
            ("NJobs", "0"),
            ("SystemState", self._state()),
            ("DefaultTimeoutStopUSec", "1min 30s"),
        ]

    def _state(self) -> str:
        if self._machine.state != "running":
            return self._machine.state
        failed = any(s.active == "failed" for s in self._machine.units.values())
        return "degraded" if failed else "running"

    async def _is_running(self, call: Call, given: Parsed, names: list[str]) -> int:
        state = self._state()
        call.out(state)
        return 0 if state == "running" else 1

    async def _is_active(self, call: Call, given: Parsed, names: list[str]) -> int:
        return self._each(call, given, names, ("active", "reloading"), 3)

    async def _is_failed(self, call: Call, given: Parsed, names: list[str]) -> int:
        return self._each(call, given, names, ("failed",), 1)

    def _each(self, call: Call, given: Parsed, names: list[str], good: tuple[str, ...], bad: int) -> int:
        status = bad
        for name in names:
            state = self._machine.unit(name).active
            status = 0 if state in good else status
            if not given.has("quiet"):
                call.out(state)
        return status

    async def _is_enabled(self, call: Call, given: Parsed, names: list[str]) -> int:
        status = 1
        for name in names:
            state = systemctl_show.unit_file_state(self._machine.unit(name))
            if not state:
                call.err(f"Failed to get unit file state for {name}: No such file or directory")
                continue
            call.out(state)
            status = 0 if state in ("enabled", "static", "transient") else status
        return status

    async def _cat(self, call: Call, given: Parsed, names: list[str]) -> int:
        for name in names:
            fragment, drop_ins = unitload.find(self._machine.root, name)
            if fragment is None:
                call.err(f"No files found for {name}.")
                return 1
            for path in (fragment, *drop_ins):
                call.raw(f"# {path}\n".encode() + path.read_bytes() + b"\n")
        return 0

    async def _list_units(self, call: Call, given: Parsed, names: list[str]) -> int:
        for name, unit in sorted(self._machine.units.items()):
            shown = unit.active != "inactive" or given.has("all")
            if given.has("failed") or given.last("state") == "failed":
                shown = unit.active == "failed"
            if shown and (not names or any(fnmatch.fnmatch(name, pattern) for pattern in names)):
                text = unit.config.description or name
                call.out(f"{name} {unit.text.load} {unit.active} {unit.sub} {text}")
        return 0

    async def _list_files(self, call: Call, given: Parsed, names: list[str]) -> int:
        found = {p.name for d in unitload.SEARCH for p in (self._machine.root / d).glob("*.service")}
        for name in sorted(found):
            if not names or any(fnmatch.fnmatch(name, pattern) for pattern in names):
                call.out(f"{name} {systemctl_show.unit_file_state(self._machine.unit(name))} enabled")
        return 0

    async def _list_jobs(self, call: Call, given: Parsed, names: list[str]) -> int:
        if self._machine.state == "stopping":
            call.out("1 reboot.target start waiting")
        else:
            call.out("No jobs running.")
        return 0

    async def _status(self, call: Call, given: Parsed, names: list[str]) -> int:
        status = 0
        for name in names:
            unit = self._machine.unit(name)
            call.out(f"{unit.title}\n     Loaded: {unit.text.load} ({unit.text.fragment})")
            call.out(f"     Active: {unit.active} ({unit.sub})")
            status = status if unit.active == "active" else 4 if unit.text.load == "not-found" else 3
        return status

    # --- changing

    def _usable(self, call: Call, name: str, verb: str) -> Service | int:
        """The unit, or the exit status after saying why it cannot be started."""
        unit = self._machine.unit(name)
        load = unit.text.load
        if load == "loaded" or unit.active not in ("inactive", "failed"):
            return unit
        if load == "not-found":
            call.err(f"Failed to {verb} {name}: Unit {name} not found.")
            return 5
        if load == "masked":
            call.err(f"Failed to {verb} {name}: Unit {name} is masked.")
            return 1
        call.err(f"Failed to {verb} {name}: Unit {name} has a bad unit file setting.")
        call.err(f"See system logs and 'systemctl status {name}' for details.")
        return 1

    async def _start(self, call: Call, given: Parsed, names: list[str], verb: str = "start") -> int:
        if self._machine.state != "running":
            call.err(f"Failed to {verb} {names[0]}: Transaction for {names[0]}/start is destructive.")
            return 4
        status = 0
        for name in names:
            found = self._usable(call, name, verb)
            if isinstance(found, int):
                status = found
                continue
            if found.need_reload():
                call.err(
                    f"Warning: The unit file, source configuration file or drop-ins of {name} changed on disk. "
                    "Run 'systemctl daemon-reload' to reload units."
                )
            job = self._machine.spawn_job(found)
            if given.has("no-block"):
                await asyncio.sleep(0)
                continue
            status = self._job_done(call, name, await asyncio.shield(job), status)
        return status

    def _job_done(self, call: Call, name: str, result: str, status: int) -> int:
        if result == "done":
            return status
        if result == "canceled":
            call.err(f"Job for {name} canceled.")
            return 1
        call.err(f"Job for {name} failed.")
        call.err(f'See "systemctl status {name}" and "journalctl -xeu {name}" for details.')
        return 1

    async def _restart(self, call: Call, given: Parsed, names: list[str]) -> int:
        for name in names:
            await self._machine.unit(name).stop()
        return await self._start(call, given, names, "restart")

    async def _stop(self, call: Call, given: Parsed, names: list[str]) -> int:
        status, tasks = 0, []
        for name in names:
            unit = self._machine.unit(name)
            if unit.text.load == "not-found" and unit.active == "inactive":
                call.err(f"Failed to stop {name}: Unit {name} not loaded.")
                status = 5
                continue
            tasks.append(self._machine.spawn(unit.stop()))
        if tasks and not given.has("no-block"):
            await asyncio.wait(tasks)
        return status

    async def _kill(self, call: Call, given: Parsed, names: list[str]) -> int:
        try:
            number = signal_number(given.last("signal", "SIGTERM"))
        except ValueError as error:
            call.err(str(error))
            return 1
        whom = given.last("kill-whom", given.last("kill-who", "all"))
        for name in names:
            unit = self._machine.unit(name)
            if unit.text.load == "not-found" and unit.active == "inactive":
                call.err(f"Failed to kill unit {name}: Unit {name} not loaded.")
                return 1
            if whom == "main" and not unit.main_pid:
                call.err(f"Failed to kill unit {name}: No main process to kill")
                return 1
            self._machine.tracker.kill(name, number, unit.main_pid if whom == "main" else 0)
        return 0

    async def _reset_failed(self, call: Call, given: Parsed, names: list[str]) -> int:
        status = 0
        for name in names or list(self._machine.units):
            unit = self._machine.unit(name)
            if unit.text.load == "not-found" and unit.active == "inactive":
                call.err(f"Failed to reset failed state of unit {name}: Unit {name} not loaded.")
                status = 1
                continue
            unit.reset_failed()
            self._machine.ended(unit)
        return status

    async def _reload(self, call: Call, given: Parsed, names: list[str]) -> int:
        self._machine.reload()
        return 0

    async def _enable(self, call: Call, given: Parsed, names: list[str]) -> int:
        for name in names:
            fragment, _ = unitload.find(self._machine.root, name)
            if fragment is None:
                call.err(f"Failed to enable unit: Unit file {name} does not exist.")
                return 1
            wanted = self._machine.unit(name).config.wanted_by
            if not wanted:
                call.err("The unit files have no installation config (WantedBy=, RequiredBy=, Also=,")
                call.err("Alias= settings in the [Install] section, and DefaultInstance= for template")
                call.err("units). This means they are not meant to be enabled or disabled using systemctl.")
                continue
            for target in wanted:
                link = self._machine.root / "etc/systemd/system" / f"{target}.wants" / name
                try:
                    link.parent.mkdir(parents=True, exist_ok=True)
                    if not link.is_symlink():
                        link.symlink_to(fragment)
                        call.err(f"Created symlink {link} → {fragment}.")
                except OSError as error:
                    call.err(f"Failed to enable unit: File {link}: {error.strerror}")
                    return 1
        self._machine.reload()
        if given.has("now"):
            return await self._start(call, given, names)
        return 0

    async def _disable(self, call: Call, given: Parsed, names: list[str]) -> int:
        for name in names:
            fragment, _ = unitload.find(self._machine.root, name)
            links = list((self._machine.root / "etc/systemd/system").glob(f"*.target.wants/{name}"))
            if fragment is None and not links:
                call.err(f"Failed to disable unit: Unit file {name} does not exist.")
                return 1
            for link in links:
                link.unlink()
                call.err(f"Removed {link}.")
        self._machine.reload()
        return await self._stop(call, given, names) if given.has("now") else 0

    async def _do_reboot(self, call: Call, given: Parsed, names: list[str]) -> int:
        self._reboot()
        return 0


def mangle(name: str) -> str:
    """`x` means x.service; patterns and names with a suffix stay."""
    if any(c in name for c in "*?[") or name.endswith((".service", ".target", ".socket", ".timer", ".slice", ".scope")):
        return name
    return f"{name}.service"
