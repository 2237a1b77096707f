"""Outlives the demo by a moment: when the pipe on stdin ends, it kills what the sandbox started and removes its root.

Run as a script by the host's Python: `guard.py TOKEN [ROOT]`. It is in a session of its own, so that neither ctrl+c nor
a SIGKILL of the demo's group takes it first.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path


def ours(token: bytes) -> set[int]:
    """Every process whose environment holds the token, and all their descendants."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    for name in (path.name for path in Path("/proc").iterdir()):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            raw = Path("/proc", name, "stat").read_bytes()
            fields = raw[raw.rindex(b")") + 2 :].split()
            if fields[0] in (b"Z", b"X"):
                continue
            parents[int(name)] = int(fields[1])
            if token in Path("/proc", name, "environ").read_bytes():
                found.add(int(name))
        except OSError:
            continue
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def sweep(token: str, deadline: float = 5.0) -> None:
    """SIGKILL to all of them until none is left, at most `deadline` seconds."""
    until, mark = time.monotonic() + deadline, f"DDTREE_SANDBOX={token}".encode()
    while time.monotonic() < until:
        left = ours(mark)
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def main(argv: list[str]) -> int:
    """Waits for the end of stdin, sweeps, and removes ROOT where one is given and it is marked as a sandbox."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        while os.read(0, 64):
            pass
    sweep(argv[0])
    if len(argv) > 1 and Path(argv[1], "sandbox.json").is_file():
        shutil.rmtree(argv[1], ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
