"""The journal of one invocation, read while it grows, without ever blocking."""

from __future__ import annotations

import contextlib
import os
import subprocess

from ddtree_console.domain import journal
from ddtree_console.hostside import systemctl

FIELDS = "MESSAGE,_SYSTEMD_UNIT,_SYSTEMD_INVOCATION_ID,_PID,SYSLOG_IDENTIFIER,_LINE_BREAK"
CHUNK = 1 << 20
"""bytes taken at a time: a flood may not keep us from the other evidence."""


class JournalTail:
    """`journalctl -f` of one invocation as a child. A child that ends (vacuumed journal) is resumed at the cursor."""

    def __init__(self, invocation: str, only_new: bool = False) -> None:
        self._match = f"_SYSTEMD_INVOCATION_ID={invocation}"
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
        return [*base, *where, self._match]

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

    def read(self) -> list[str]:
        """Texts of the entries that came; [] when none did."""
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
        return self._texts(whole) if newline else []

    def _texts(self, data: bytes) -> list[str]:
        texts: list[str] = []
        for line in data.split(b"\n"):
            entry = journal.parse_entry(line)
            if entry is None:
                continue
            self._cursor = entry.cursor or self._cursor
            joined = self._joiner.feed(entry)
            if joined is not None:
                texts.append(joined.text)
        return texts

    def rest(self) -> list[str]:
        """After the unit ended: everything of the invocation that was not read yet, also what journald still holds."""
        systemctl.run(["journalctl", "--sync"], 5)
        texts = self.read()
        self.close()
        self._buffer = b""
        texts += self._texts(systemctl.run(self._argv(False), 20).out)
        texts += [entry.text for entry in self._joiner.flush()]
        return texts

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
