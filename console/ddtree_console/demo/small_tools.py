"""The sandbox's `systemd-analyze verify` and `reboot`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ddtree_console.demo import settings, unitload
from ddtree_console.demo.control import Call
from ddtree_console.demo.supervisor import Supervisor
from ddtree_console.demo.systemctl import VERSION


class Analyze:
    """`systemd-analyze verify [--man=no] FILE..`: warnings on stderr with the path; 1 only when a unit cannot run."""

    def __init__(self, machine: Supervisor) -> None:
        self._machine = machine

    async def __call__(self, call: Call) -> int:
        """The exit status."""
        words = [word for word in call.args if not word.startswith("--")]
        if "--version" in call.args:
            call.out(VERSION)
            return 0
        if words[:1] != ["verify"] or len(words) < 2:
            call.err("Unknown command verb." if words[:1] != ["verify"] else "Too few arguments.")
            return 1
        return max([self._verify(call, Path(call.cwd, word)) for word in words[1:]])

    def _verify(self, call: Call, path: Path) -> int:
        unit = unitload.UnitText(path.name, "loaded", str(path))
        try:
            unitload.read_into(unit, path)
        except FileNotFoundError:
            call.err(f"Unit {path.name} not found.")
            return 1
        except OSError as error:
            call.err(f"{path}: Failed to open: {error.strerror}")
            return 1
        unitload.finish(unit)
        for problem in unit.problems:
            call.err(problem)
        if unit.load != "loaded":
            call.err(f"Unit {path.name} has a bad unit file setting.")
            return 1
        status = 0
        found = settings.of(unit, self._machine.specifiers(path.name))
        for command in (*found.start_pre, *found.start, *found.start_post, *found.stop, *found.stop_post):
            try:
                self._machine.program(command.argv[0])
            except OSError as error:
                call.err(f"{path.name}: Command {command.argv[0]} is not executable: {error.strerror}")
                status = 1
        return status


class Reboot:
    """`reboot`: asks for it and returns at once."""

    def __init__(self, reboot: Callable[[], None]) -> None:
        self._reboot = reboot

    async def __call__(self, call: Call) -> int:
        """Always 0."""
        self._reboot()
        return 0
