"""A unit's visible state and the words in which systemd tells of it."""

from __future__ import annotations

import signal
from dataclasses import dataclass

CLD_EXITED, CLD_KILLED, CLD_DUMPED = 1, 2, 3
_CODES = {CLD_EXITED: "exited", CLD_KILLED: "killed", CLD_DUMPED: "dumped"}
_STATUS = {
    0: "SUCCESS",
    1: "FAILURE",
    2: "INVALIDARGUMENT",
    3: "NOTIMPLEMENTED",
    4: "NOPERMISSION",
    5: "NOTINSTALLED",
    6: "NOTCONFIGURED",
    7: "NOTRUNNING",
    200: "CHDIR",
    203: "EXEC",
    217: "USER",
}
CLEAN_SIGNALS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE})


@dataclass(frozen=True)
class Exit:
    """How a process ended, in siginfo's terms."""

    code: int
    status: int

    @property
    def words(self) -> str:
        """`code=killed, status=9/KILL`."""
        if self.code == CLD_EXITED:
            name = _STATUS.get(self.status, "n/a")
        else:
            name = signal.Signals(self.status).name.removeprefix("SIG")
        return f"code={_CODES[self.code]}, status={self.status}/{name}"

    @property
    def env(self) -> dict[str, str]:
        """EXIT_CODE and EXIT_STATUS as ExecStopPost sees them."""
        status = str(self.status)
        if self.code != CLD_EXITED:
            status = signal.Signals(self.status).name.removeprefix("SIG")
        return {"EXIT_CODE": _CODES[self.code], "EXIT_STATUS": status}

    def result(self, success: frozenset[str] = frozenset(), daemon: bool = True) -> str:
        """success | exit-code | signal | core-dump. A daemon ended by TERM, HUP, INT or PIPE ended well."""
        names = {str(self.status)} if self.code == CLD_EXITED else {signal.Signals(self.status).name}
        if names & success:
            return "success"
        if self.code == CLD_EXITED:
            return "success" if self.status == 0 else "exit-code"
        if self.code == CLD_KILLED and daemon and self.status in CLEAN_SIGNALS:
            return "success"
        return "core-dump" if self.code == CLD_DUMPED else "signal"


def exit_of(returncode: int, dumped: bool = False) -> Exit:
    """From subprocess's returncode (negative = signal)."""
    if returncode >= 0:
        return Exit(CLD_EXITED, returncode)
    return Exit(CLD_DUMPED if dumped else CLD_KILLED, -returncode)


@dataclass
class Stamps:
    """Wall clock seconds and monotonic microseconds of the state changes, 0 = never."""

    state_change: float = 0.0
    active_enter: float = 0.0
    active_exit: float = 0.0
    inactive_enter: float = 0.0
    inactive_exit: float = 0.0
    main_start: float = 0.0
    main_exit: float = 0.0


def restarts(policy: str, result: str) -> bool:
    """Whether systemd starts it again after this result."""
    if policy == "always":
        return True
    if policy == "on-success":
        return result == "success"
    if policy == "on-failure":
        return result != "success"
    if policy == "on-abnormal":
        return result not in ("success", "exit-code")
    if policy == "on-abort":
        return result in ("signal", "core-dump")
    return policy == "on-watchdog" and result == "watchdog"
