"""Unit states for the watcher: one `systemctl show` for all units at a time, never waited for."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ddtree_console.domain import systemdshow
from ddtree_console.domain.snapshot import UnitState
from ddtree_console.hostside import systemctl

DEADLINE = 10.0
# They move all the time; alone they are not worth a message.
RESTLESS = ("cpu_ns", "memory")


class UnitReader:
    """Starts a show, reads it when its pipe is readable, gives up at the deadline."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._units: tuple[str, ...] = ()
        self._out = b""
        self.due: float | None = None
        """monotonic time by which it must have answered; None when none runs."""
        self.problem = ""

    def ask(self, units: Sequence[str]) -> None:
        """Starts one; `problem` says why not."""
        self._units, self._out, self.problem = tuple(units), b"", ""
        try:
            self._child = subprocess.Popen(
                systemctl.show_argv(units),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=systemctl.environment(),
            )
        except OSError as error:
            self.problem = f"systemctl: {error.strerror}"
            return
        self.due = time.monotonic() + DEADLINE

    def fileno(self) -> int:
        """Its pipe, -1 when none runs."""
        return -1 if self._child is None or self._child.stdout is None else self._child.stdout.fileno()

    def take(self) -> dict[str, UnitState] | None:
        """The states once all of the answer is there; None before that, or with `problem` set."""
        assert self._child is not None
        data = os.read(self.fileno(), 1 << 16)
        if data:
            self._out += data
            return None
        text = self._out.decode("utf-8", "replace")
        status = self._end()
        states = systemdshow.states(self._units, text)
        if not states:
            said = text.strip().splitlines()
            self.problem = f"systemctl show: {said[0] if said else f'exit status {status}'}"
            return None
        return states

    def overdue(self) -> None:
        """Kills one that hangs."""
        self.problem = f"systemctl show: no answer within {DEADLINE:g} s"
        self.close()

    def close(self) -> None:
        """Ends one that runs."""
        if self._child is not None:
            self._child.kill()
            self._end()

    def _end(self) -> int:
        assert self._child is not None
        if self._child.stdout is not None:
            self._child.stdout.close()
        status = self._child.wait()
        self._child, self.due = None, None
        return status


def payload(states: dict[str, UnitState]) -> dict[str, Any]:
    """The `units` message."""
    units = {}
    for unit, state in states.items():
        units[unit] = asdict(state)
        del units[unit]["unit"]
    return {"units": units}


def key(message: dict[str, Any]) -> dict[str, Any]:
    """What counts as a change in it."""
    return {unit: {k: v for k, v in raw.items() if k not in RESTLESS} for unit, raw in message["units"].items()}
