"""What a transaction does to a unit through systemd: the trial in /run, the committed file in /etc, start and stop."""

from __future__ import annotations

import errno
import re
from pathlib import Path

from ddtree_console.domain.snapshot import UnitState
from ddtree_console.hostside import durable, systemctl
from ddtree_console.hostside.roots import Roots


class Refused(Exception):
    """systemd or the disk refused. code: a verdict code; cause and next_step in one line each."""

    def __init__(self, code: str, cause: str, next_step: str = "") -> None:
        super().__init__(cause)
        self.code, self.cause, self.next_step = code, cause, next_step


def tx_unit(unit: str) -> str:
    """The transient unit of a slot's transaction: one fixed name, so that systemd itself refuses a second."""
    return f"ddtree-tx-{unit}"


def show(unit: str) -> UnitState:
    """State of one unit; an empty one when systemd does not answer (it may be re-executing)."""
    try:
        return systemctl.show([unit]).get(unit) or UnitState(unit)
    except OSError:
        return UnitState(unit)


def ctl(*words: str, timeout: float = 30) -> systemctl.Done:
    """systemctl with those words."""
    return systemctl.run(["systemctl", "--no-pager", "--no-ask-password", *words], timeout)


def reload_units() -> None:
    """daemon-reload; Refused when it fails."""
    done = ctl("daemon-reload", timeout=90)
    if done.status != 0:
        raise Refused("other", f"daemon-reload: {done.problem}", "see systemctl status of the host")


def write_trial(roots: Roots, unit: str, text: str) -> None:
    """Puts a unit on trial and proves that systemd takes it from there. Refused(trial-shadowed) otherwise."""
    path = roots.trial(unit)
    try:
        durable.write_atomic(path, text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise Refused("other", f"{path}: {error.strerror}", "make room in /run") from error
    reload_units()
    fragment = show(unit).fragment
    if Path(fragment) != path:
        durable.remove(path)
        reload_units()
        cause = f"systemd reads {unit} from {fragment or 'nowhere'}, not from {path}"
        raise Refused("trial-shadowed", cause, f"remove {fragment}" if fragment else "")


def shadow(roots: Roots, unit: str) -> str:
    """The one file that would outrank a trial; '' when there is none."""
    path = Path(roots.etc, "systemd/system.control", unit)
    return str(path) if path.exists() else ""


def remove_trial(roots: Roots, unit: str) -> bool:
    """Ends the trial; True when there was one. Refused when /run or systemd refuse."""
    try:
        was = durable.remove(roots.trial(unit))
    except OSError as error:
        raise Refused("other", f"{roots.trial(unit)}: {error.strerror}", "remove it by hand") from error
    if was:
        reload_units()
    return was


def start(unit: str) -> None:
    """reset-failed, then start --no-block. Refused(start-refused) with systemd's words."""
    ctl("reset-failed", unit)
    done = ctl("start", "--no-block", unit)
    if done.status != 0:
        raise Refused("start-refused", done.problem, f"systemctl status {unit}")


def stop(unit: str) -> None:
    """Asks for a stop and returns at once; a failure shows in the states that follow."""
    ctl("stop", "--no-block", unit)


def kill(unit: str) -> None:
    """SIGKILL to every process of the unit."""
    ctl("kill", "--signal=KILL", unit)


def down(state: UnitState) -> bool:
    """Whether nothing of the unit runs and nothing will start it again by itself."""
    return state.active in ("inactive", "failed", "") and state.sub not in ("auto-restart", "auto-restart-queued")


def commit_file(roots: Roots, unit: str, text: str) -> None:
    """The committed unit, replaced whole and synced. Refused(disk-full, read-only, other)."""
    try:
        durable.write_atomic(roots.committed(unit), text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise disk_refused(error, str(roots.committed(unit))) from error


def disk_refused(error: OSError, what: str) -> Refused:
    """A failed write as a verdict."""
    code = {errno.ENOSPC: "disk-full", errno.EDQUOT: "disk-full", errno.EROFS: "read-only"}.get(
        error.errno or 0, "other"
    )
    step = {"disk-full": "make room on that disk", "read-only": "remount it read-write"}.get(code, "")
    return Refused(code, f"{what}: {error.strerror or error}", step)


def enable(unit: str, on: bool = True) -> str:
    """Enables (disables) the unit; '' when it worked, else why not."""
    done = ctl("enable" if on else "disable", unit)
    return "" if done.status == 0 else f"systemctl {'enable' if on else 'disable'} {unit}: {done.problem}"


def stopping() -> bool:
    """Whether the whole system is shutting down."""
    return ctl("is-system-running").out.strip() == b"stopping"


def verify(roots: Roots, unit: str, text: str) -> str:
    """'' when systemd-analyze has nothing to say about this unit, else its words (252 returns 0 for a bad key)."""
    folder = roots.live(unit) / "verify"
    path = folder / unit
    durable.write_atomic(path, text.encode("utf-8", "surrogateescape"))
    done = systemctl.run(["systemd-analyze", "verify", "--man=no", str(path)], 30)
    durable.remove(path)
    said = done.err.decode("utf-8", "replace").splitlines()
    about_us = re.compile(rf"(?<![\w@.-]){re.escape(unit)}(?![\w.-])")
    ours = [line.replace(f"{folder}/", "") for line in said if str(path) in line or about_us.search(line)]
    if ours:
        return "; ".join(ours[:3])
    if done.status == 127:
        return ""
    if done.status != 0 and not said:
        return f"systemd-analyze verify: exit status {done.status}"
    return ""
