"""The journal of one invocation, read while it grows, without ever blocking."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import NamedTuple

from ddtree_console.domain import journal
from ddtree_console.hostside import systemctl

FIELDS = "MESSAGE,UNIT,INVOCATION_ID,_SYSTEMD_UNIT,_SYSTEMD_INVOCATION_ID,_PID,SYSLOG_IDENTIFIER,_LINE_BREAK"
CHUNK = 1 << 20
"""bytes taken at a time: a flood may not keep us from the other evidence."""


class Said(NamedTuple):
    """One entry. source: 'systemd' for what the manager says of the unit, '' for the service's own lines."""

    text: str
    pid: int = 0
    source: str = ""


def said(entry: journal.Entry) -> Said:
    """The entry as the ladder reads it. A child of systemd that fails before its exec names itself in brackets."""
    manager = entry.ident == "systemd" or (entry.ident.startswith("(") and entry.ident.endswith(")"))
    return Said(entry.text, entry.pid, "systemd" if manager else "")


class JournalTail:
    """`journalctl -f` of one invocation as a child. A child that ends (vacuumed journal) is resumed at the cursor."""

    def __init__(self, invocation: str, only_new: bool = False) -> None:
        # What systemd says of the unit has that field, which a program could set too: only root is believed.
        own, manager = f"_SYSTEMD_INVOCATION_ID={invocation}", f"INVOCATION_ID={invocation}"
        self._match = [own, "+", manager, "_UID=0"]
        self._lines = "0" if only_new else "all"
        self._cursor = ""
        self._joiner = journal.Joiner()
        self._buffer = b""
        self._child: subprocess.Popen[bytes] | None = None
        self._start()

    def _argv(self, follow: bool) -> list[str]:
        base = ["journalctl", "--no-pager", "--quiet", "-o", "json", "--all", f"--output-fields={FIELDS}"]
        where = [f"--after-cursor={self._cursor}"] if self._cursor else []
        if follow:
            where += ["-f", *([] if self._cursor else ["-n", self._lines])]
        return [*base, *where, *self._match]

    def _start(self) -> None:
        try:
            self._child = subprocess.Popen(
                self._argv(True),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=systemctl.environment(),
            )
        except OSError:
            self._child = None
            return
        if self._child.stdout is not None:
            os.set_blocking(self._child.stdout.fileno(), False)

    def fileno(self) -> int:
        """What to wait on; -1 without a child."""
        return -1 if self._child is None or self._child.stdout is None else self._child.stdout.fileno()

    @property
    def gone(self) -> bool:
        """Whether journalctl ended (or never started): call resume(), not too often."""
        return self._child is None

    def resume(self) -> None:
        """Starts journalctl again behind the last entry read."""
        if self._child is None:
            self._start()

    def read(self) -> list[Said]:
        """The entries that came; [] when none did."""
        if self.fileno() < 0:
            return []
        try:
            data = os.read(self.fileno(), CHUNK)
        except BlockingIOError:
            return []
        if not data:
            self.close()
            return []
        whole, newline, self._buffer = (self._buffer + data).rpartition(b"\n")
        return self._entries(whole) if newline else []

    def _entries(self, data: bytes) -> list[Said]:
        found: list[Said] = []
        for line in data.split(b"\n"):
            entry = journal.parse_entry(line)
            if entry is None:
                continue
            self._cursor = entry.cursor or self._cursor
            joined = self._joiner.feed(entry)
            if joined is not None:
                found.append(said(joined))
        return found

    def rest(self) -> list[Said]:
        """After the unit ended: everything of the invocation that was not read yet, also what journald still holds."""
        systemctl.run(["journalctl", "--sync"], 5)
        found = self.read()
        self.close()
        self._buffer = b""
        found += self._entries(systemctl.run(self._argv(False), 20).out)
        found += [said(entry) for entry in self._joiner.flush()]
        return found

    def close(self) -> None:
        """Ends the child."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        if child.stdout is not None:
            with contextlib.suppress(OSError):
                child.stdout.close()
