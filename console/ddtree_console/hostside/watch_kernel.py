"""Xid lines of the NVIDIA driver from the kernel's log, for the watcher: one quiet child, restarted when it ends."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from typing import Any

from ddtree_console.domain import journal
from ddtree_console.hostside import systemctl

AGAIN = 60.0
"""seconds before a journalctl that ended is started again."""
MOST = 20
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)(?:, pid='?(\d+))?")


class KernelWatch:
    """Follows the kernel's log of this boot; `take` gives what is new."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._next = 0.0
        self.seen: list[dict[str, Any]] = []

    def fileno(self) -> int:
        """Its pipe, -1 while none runs."""
        return -1 if self._child is None or self._child.stdout is None else self._child.stdout.fileno()

    def start(self) -> bool:
        """Starts it where it does not run and its time has come; True when it was started now."""
        now = time.monotonic()
        if self._child is not None or now < self._next:
            return False
        self._next = now + AGAIN
        argv = ["journalctl", "-k", "-b", "-n", "500", "-f", "--no-pager", "--quiet", "-o", "json"]
        try:
            self._child = subprocess.Popen(
                [*argv, "--output-fields=MESSAGE"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=systemctl.environment(),
            )
        except OSError:
            return False
        self.seen = []
        return True

    def take(self) -> bool:
        """Reads what came; True when a new Xid is among it."""
        data = os.read(self.fileno(), 1 << 16)
        if not data:
            self.close()
            return False
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        before = len(self.seen)
        for line in lines:
            if b"Xid" not in line:
                continue
            entry = journal.parse_entry(line)
            found = _XID.search(entry.text) if entry is not None else None
            if entry is not None and found is not None:
                pci, code, pid = found.groups()
                told = {"pci": pci.lower(), "code": int(code), "pid": int(pid or 0), "wall": entry.when}
                self.seen.append({**told, "text": entry.text[:300]})
        new = len(self.seen) > before
        self.seen = self.seen[-MOST:]
        return new

    def close(self) -> None:
        """Ends the child."""
        child, self._child, self._buffer = self._child, None, b""
        if child is None:
            return
        child.kill()
        child.wait()
        if child.stdout is not None:
            with contextlib.suppress(OSError):
                child.stdout.close()
