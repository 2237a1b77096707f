"""The host code's entry for tests: runs one command, and cuts the transaction at a point that cut.json names.

cut.json: {"unit", "what": "event" | "effect", "at": n, "how": "kill" | "freeze"}. event: after its nth event. effect:
before its nth change of anything (file, systemd). When it cuts it writes `reached-UNIT` beside cut-UNIT.json.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddtree_console.hostside import __main__ as host
from ddtree_console.hostside import durable, eventlog, systemctl

HERE = Path(sys.argv[0]).resolve().parent


class Cutter:
    """Counts, and cuts at the right moment."""

    def __init__(self, unit: str, at: int, how: str) -> None:
        self.unit, self.at, self.how, self.count = unit, at, how, 0

    def pass_by(self) -> None:
        """One more point."""
        if self.count == self.at:
            (HERE / f"reached-{self.unit}").write_text(str(self.at))
            os.kill(os.getpid(), signal.SIGKILL if self.how == "kill" else signal.SIGSTOP)
        self.count += 1

    def before(self, call: Callable[..., Any], counts: Callable[..., bool]) -> Callable[..., Any]:
        """The call with a point before it."""

        def wrapped(*args: Any, **more: Any) -> Any:
            if counts(*args):
                self.pass_by()
            return call(*args, **more)

        return wrapped


def arm(unit: str) -> None:
    """Reads cut-UNIT.json and puts the points in."""
    path = HERE / f"cut-{unit}.json"
    if not path.exists():
        return
    plan = json.loads(path.read_text())
    cutter = Cutter(unit, plan["at"], plan["how"])
    if plan["what"] == "event":
        emit = eventlog.EventLog.emit

        def emitted(self: eventlog.EventLog, kind: str, **data: Any) -> Any:
            event = emit(self, kind, **data)
            if kind not in ("progress", "phase"):
                cutter.pass_by()
            return event

        eventlog.EventLog.emit = emitted  # type: ignore[method-assign]
        return
    reading = ("show", "is-system-running", "verify", "--sync")
    systemctl.run = cutter.before(systemctl.run, lambda argv, *_: not any(word in reading for word in argv))
    for name in ("write_atomic", "remove"):
        setattr(durable, name, cutter.before(getattr(durable, name), lambda *_: True))


def fill(unit: str) -> None:
    """Refuses every write below the folder that full-UNIT names, as a full disk does."""
    path = HERE / f"full-{unit}"
    if not path.exists():
        return
    full = path.read_text()
    opened = os.open

    def no_room(file: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_CREAT and str(file).startswith(full + "/"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
        return opened(file, flags, *more, **named)

    os.open = no_room  # type: ignore[assignment]


if __name__ == "__main__":
    if sys.argv[-2] in ("tx", "recover"):
        fill(sys.argv[-1])
    if sys.argv[-2] == "tx":
        arm(sys.argv[-1])
    sys.exit(host.main(sys.argv[1:]))
