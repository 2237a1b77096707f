"""Runs systemd's tools (found through PATH) and reads unit states with them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from ddtree_console.domain import systemdshow
from ddtree_console.domain.snapshot import UnitState


@dataclass(frozen=True)
class Done:
    """A finished command. status: -1 = killed at its timeout, 127 = not found, -N = signal N (never 1 by timeout)."""

    status: int
    out: bytes
    err: bytes

    @property
    def problem(self) -> str:
        """The first line of stderr, else the exit status, as one line of text."""
        lines = self.err.decode("utf-8", "replace").strip().splitlines()
        return lines[0] if lines else f"exit status {self.status}"


def environment() -> dict[str, str]:
    """Our environment with plain English, UTC, no pager and no colours."""
    fixed = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0", "SYSTEMD_URLIFY": "0"}
    return {**os.environ, **fixed}


def run(argv: Sequence[str], timeout: float = 30, stdin: bytes = b"") -> Done:
    """Runs a command to its end. Never raises for the command: see Done.status."""
    try:
        done = subprocess.run(
            list(argv), input=stdin, capture_output=True, timeout=timeout, env=environment(), check=False
        )
    except subprocess.TimeoutExpired as error:
        return Done(-1, error.stdout or b"", f"{argv[0]}: no answer within {timeout:g} s".encode())
    except FileNotFoundError:
        return Done(127, b"", f"{argv[0]}: command not found".encode())
    except OSError as error:
        return Done(126, b"", f"{argv[0]}: {error.strerror}".encode())
    return Done(done.returncode, done.stdout, done.stderr)


def show_argv(units: Sequence[str]) -> list[str]:
    """The one command that shows all those units."""
    return ["systemctl", "show", "--no-pager", "-p", ",".join(systemdshow.PROPERTIES), "--", *units]


def show(units: Sequence[str], timeout: float = 10) -> dict[str, UnitState]:
    """States by unit, in one call; a unit that systemd does not know has load `not-found`. OSError when it fails."""
    if not units:
        return {}
    done = run(show_argv(units), timeout)
    found = systemdshow.states(units, done.out.decode("utf-8", "replace"))
    if done.status != 0 and not found:
        raise OSError(f"systemctl show: {done.problem}")
    return found
