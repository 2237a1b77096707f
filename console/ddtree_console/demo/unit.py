"""What one loaded unit is and shows: text, state, result, times; and systemd's lines about it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ddtree_console.demo import settings as settings_module
from ddtree_console.demo.child import Child
from ddtree_console.demo.unit_state import Exit, Stamps
from ddtree_console.demo.unitload import UnitText, find, stamp

if TYPE_CHECKING:
    from ddtree_console.demo.supervisor import Supervisor


class Unit:
    """One loaded unit. active, sub, result, restarts, invocation, main_pid, exit: as `systemctl show` has them."""

    def __init__(self, machine: Supervisor, text: UnitText, transient: bool = False) -> None:
        self.machine, self.name, self.transient = machine, text.name, transient
        self.adopt(text)
        self.active, self.sub, self.result = "inactive", "dead", "success"
        self.invocation, self.restarts, self.stamps = "", 0, Stamps()
        self.main: Child | None = None
        self.main_pid, self.exit = 0, Exit(0, 0)
        self.exec_pid = 0
        self.available: float | None = None
        """GiB left on its first GPU, as its own log said last"""
        self._children: list[Child] = []
        self.names: dict[int, str] = {}
        """what each process was started as: SyslogIdentifier's default, known even after the process is gone"""

    def adopt(self, text: UnitText) -> None:
        """Takes the unit's text (load, daemon-reload); a running process is not touched."""
        self.text = text
        usable = text.load == "loaded"
        self.settings = settings_module.of(text, self.machine.specifiers(self.name)) if usable else None

    @property
    def config(self) -> settings_module.Settings:
        """The settings, defaults where the unit is broken or gone."""
        return self.settings or settings_module.Settings()

    @property
    def title(self) -> str:
        """`NAME - Description`, as systemd's own lines have it."""
        text = self.config.description
        return f"{self.name} - {text}" if text and text != self.name else self.name

    @property
    def control_group(self) -> str:
        """Path of the cgroup while there is one."""
        return (
            "" if self.active in ("inactive", "failed") or self.sub == "auto-restart" else f"/system.slice/{self.name}"
        )

    def drain(self) -> None:
        """Takes the output that is still in the pipes."""
        for child in self._children:
            child.drain()

    def _note(self, result: str) -> None:
        """The first failure is the result."""
        if self.result == "success":
            self.result = result

    def _failed(self, result: str) -> None:
        self.result = result
        self.log(f"Failed with result '{result}'.", 4)
        self._set("failed", "failed")

    def _set(self, active: str, sub: str) -> None:
        now, was = time.time(), self.active
        self.active, self.sub = active, sub
        stamps = self.stamps
        stamps.state_change = now
        if was != active:
            down, up = ("inactive", "failed"), ("active", "reloading")
            if active in up:
                stamps.active_enter = now
            if was in up:
                stamps.active_exit = now
            if active in down and was not in down:
                stamps.inactive_enter = now
            if was in down and active not in down:
                stamps.inactive_exit = now

    def log(self, text: str, priority: int = 6) -> None:
        """One of systemd's lines that begin with the unit's name."""
        self.machine.log(self, f"{self.name}: {text}", priority)

    @property
    def cpu_nsec(self) -> int | None:
        """CPU time of this activation, None before any."""
        return self.machine.tracker.usec(self.name) * 1000 if self.invocation else None

    def need_reload(self) -> bool:
        """Whether a file that was read has changed, or other drop-ins lie there now. A new fragment elsewhere does not
        show before the reload, as in systemd."""
        if any(stamp(path) != then for path, then in self.text.stamps.items()):
            return True
        return tuple(str(p) for p in find(self.machine.root, self.name)[1]) != self.text.drop_ins
