"""Fills a sandbox host's bin folder: its whole PATH, so that no tool of the machine is ever found by name."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ASKED = ("systemctl", "journalctl", "systemd-run", "systemd-analyze", "nvidia-smi", "reboot")
"""tools that hand themselves to the supervisor"""
REFUSED = ("shutdown", "poweroff", "halt", "init", "telinit", "service", "loginctl", "busctl", "machinectl")
"""tools that would reach the machine; here they only say that there is no such thing"""
TOOLS = (*ASKED, *REFUSED, "sudo")
PLAIN = ("cat", "echo", "env", "false", "id", "ls", "printf", "sh", "sleep", "test", "true", "uname")

_SUDO = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
    -n|-E|-H|-S|--non-interactive) shift ;;
    -u|-g) shift 2 ;;
    --) shift; break ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || { echo "usage: sudo -n command" >&2; exit 1; }
exec "$@"
"""
_NONE = """#!/bin/sh
echo "${0##*/}: not in a sandbox host" >&2
exit 1
"""


def interpreter() -> str:
    """The real interpreter behind a virtual environment or a version manager's wrapper."""
    for path in (getattr(sys, "_base_executable", ""), sys.executable, shutil.which("python3") or ""):
        if path and os.access(path, os.X_OK):
            return str(Path(path).resolve())
    raise FileNotFoundError("no python3 to run the demo's hosts with")


def install(folder: Path) -> None:
    """Writes the tools. OSError when the folder cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    body = Path(__file__).with_name("shim.py").read_text("utf-8")
    script = folder / "systemctl"
    # -I -S: no site, no user folder; a few milliseconds instead of fifty.
    script.write_text(f"#!{interpreter()} -IS\n{body}", "utf-8")
    script.chmod(0o755)
    for name in ASKED[1:]:
        (folder / name).symlink_to("systemctl")
    for name, text in (("sudo", _SUDO), *((name, _NONE) for name in REFUSED)):
        (folder / name).write_text(text, "utf-8")
        (folder / name).chmod(0o755)
    (folder / "python3").symlink_to(interpreter())
    for name in PLAIN:
        found = shutil.which(name, path="/usr/bin:/bin")
        if found:
            (folder / name).symlink_to(found)
