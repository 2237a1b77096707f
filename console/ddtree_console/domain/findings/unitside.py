"""What systemd's and the kernel's own lines say of a service: exits and their meaning, restarts, kills."""

from __future__ import annotations

import re
from typing import NamedTuple

_UNIT = re.compile(
    r"(?:/\S{1,200}/)?[\w@.\\:-]{1,200}\.service(?::\d+)?: |(?:Main|Control) process exited, code=|"
    r"(?:Failed to start|Started) \S+\.service"
)
_EXIT = re.compile(r"code=(exited|killed|dumped),? status=(\d+)(?:/([\w-]+))?")
_RESULT = re.compile(
    r"['\"“„«‘](exit-code|signal|core-dump|oom-kill|timeout|watchdog|start-limit-hit|resources|protocol|exec-condition)['\"”“»’]"
)
_RESTART = re.compile(r"Scheduled restart job|restart counter is at (\d+)")
SILENCE = re.compile(r"\s*\([^()]*\b(?:no|without|nothing|still)\b[^()]*(?:\([^()]*\)[^()]*)*\)\s*$")
"""a note in a log that stands for silence until its time; no program prints a whole line in brackets."""
SIGNALS = {
    "4": "SIGILL",
    "6": "SIGABRT",
    "7": "SIGBUS",
    "8": "SIGFPE",
    "9": "SIGKILL",
    "11": "SIGSEGV",
    "15": "SIGTERM",
}
STEPS = {"203": "unit-exec-failed", "200": "unit-chdir-failed", "217": "unit-user-missing", "216": "unit-user-missing"}


class Note(NamedTuple):
    """kind: exit (code, status) | result (status) | restart | started | stopping | ''."""

    kind: str
    code: str = ""
    status: str = ""


def read(message: str) -> Note:
    """What one line of the manager says."""
    found = _EXIT.search(message)
    if found is not None:
        return Note("exit", found.group(1), found.group(2))
    result = _RESULT.search(message)
    if result is not None:
        return Note("result", "", result.group(1))
    if _RESTART.search(message) is not None:
        return Note("restart")
    if message.startswith("Started ") or ": Started" in message:
        return Note("started")
    if message.startswith("Stopping ") or "Deactivated successfully" in message or ": Stopping" in message:
        return Note("stopping")
    return Note("")


def slug_of_exit(code: str, status: str, result: str) -> str:
    """What an exit alone tells, '' for nothing. After its own SIGQUIT SGLang kills itself: 9/KILL means nothing."""
    if result == "oom-kill":
        return "host-memory-short"
    if code == "exited" and status in STEPS:
        return STEPS[status]
    if code == "dumped" or (code == "killed" and status in ("4", "6", "7", "8", "11")):
        return "native-crash"
    if result in ("start-limit-hit", "timeout"):
        return "unit-start-policy"
    return ""


def is_manager(message: str) -> bool:
    """Whether a line without a known source is the manager's: it begins with a unit's name."""
    return _UNIT.match(message) is not None
