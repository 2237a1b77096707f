"""The sandbox's `systemd-run`: a transient service, its unit file under run/systemd/transient as systemd writes it."""

from __future__ import annotations

import asyncio
import contextlib
import uuid

from ddtree_console.demo import unitload
from ddtree_console.demo.control import Call
from ddtree_console.demo.options import Usage, parse
from ddtree_console.demo.service import Service
from ddtree_console.demo.supervisor import Supervisor
from ddtree_console.demo.systemctl import VERSION, mangle
from ddtree_console.domain import quoting

_VALUED = (
    "unit",
    "property",
    "setenv",
    "description",
    "slice",
    "service-type",
    "uid",
    "gid",
    "working-directory",
    "nice",
)
_SWITCHES = ("collect", "no-block", "quiet", "remain-after-exit", "wait", "no-ask-password", "system", "version")
_SHORT = {"u": "unit", "p": "property", "E": "setenv", "G": "collect", "q": "quiet", "r": "remain-after-exit"}
_UNIT_KEYS = ("Description", "CollectMode", "StartLimitIntervalSec", "StartLimitBurst", "After", "Before", "Conflicts")


class SystemdRun:
    """One host's systemd-run."""

    def __init__(self, machine: Supervisor) -> None:
        self._machine = machine

    async def __call__(self, call: Call) -> int:
        """The exit status."""
        machine = self._machine
        try:
            given = parse(call.args, _VALUED, _SWITCHES, _SHORT, stop_at_word=True)
            if given.has("version"):
                call.out(VERSION)
                return 0
            if not given.words:
                raise Usage("Command line to execute required.")
            text = self._text(given.options, given.words)
        except (Usage, ValueError) as error:
            call.err(f"systemd-run: {error}" if isinstance(error, Usage) else str(error))
            return 1
        if machine.state != "running":
            call.err("Failed to start transient service unit: Transaction is destructive.")
            return 1
        name = mangle(given.last("unit") or f"run-u{uuid.uuid4().hex[:6]}")
        known = machine.unit(name)
        if known.text.load != "not-found" or known.active != "inactive":
            call.err(f"Failed to start transient service unit: Unit {name} was already loaded or has a fragment file.")
            return 1
        path = machine.root / "run/systemd/transient" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", "surrogateescape")
        service = Service(machine, unitload.load(machine.root, name), transient=True)
        if service.settings is None:
            path.unlink()
            call.err(f"Failed to start transient service unit: {' '.join(service.text.problems)}")
            return 1
        machine.units[name] = service
        job = machine.spawn_job(service)
        await asyncio.sleep(0)
        if not given.has("no-block") and not given.has("wait"):
            result = await asyncio.shield(job)
            if result != "done":
                call.err(f"Job for {name} {'canceled' if result == 'canceled' else 'failed'}.")
                call.err(f'See "systemctl status {name}" and "journalctl -xeu {name}" for details.')
                return 1
        if not given.has("quiet"):
            call.err(f"Running as unit: {name}")
        if given.has("wait"):
            with contextlib.suppress(asyncio.CancelledError):
                await service.finished()
            return service.exit.status if service.exit.code <= 1 else 1
        return 0

    def _text(self, options: dict[str, list[str]], command: list[str]) -> str:
        """The transient unit. ValueError in systemd-run's words for a property that it does not know."""
        unit, service = ["# This is a transient unit file, created programmatically via the systemd API."], []
        unit.append("[Unit]")
        unit.append("Description=" + options.get("description", [" ".join(command).replace("%", "%%")])[-1])
        if "collect" in options:
            unit.append("CollectMode=inactive-or-failed")
        service.append("[Service]")
        known = unitload.directives()
        for assignment in options.get("property", []):
            key, sep, value = assignment.partition("=")
            if not sep:
                raise ValueError(f"Not an assignment: {assignment}")
            if key not in known["Service"] and key not in known["Unit"]:
                raise ValueError(f"Unknown assignment: {assignment}")
            (unit if key in _UNIT_KEYS else service).append(f"{key}={value}")
        for assignment in options.get("setenv", []):
            name, _, value = assignment.partition("=")
            service.append("Environment=" + quoting.quote_env(name, value))
        for option, key in (("service-type", "Type"), ("working-directory", "WorkingDirectory"), ("uid", "User")):
            if option in options:
                service.append(f"{key}={options[option][-1]}")
        if "remain-after-exit" in options:
            service.append("RemainAfterExit=yes")
        argv = [quoting.quote_program(command[0]), *(quoting.quote_arg(word) for word in command[1:])]
        service.append("ExecStart=" + " ".join(argv))
        return "\n".join([*unit, *service]) + "\n"
