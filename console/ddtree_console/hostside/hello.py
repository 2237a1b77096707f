"""Who answers: interpreter, user, boot, systemd. The first thing that a console wants to know."""

from __future__ import annotations

import json
import os
import platform
import pwd
import sys
from pathlib import Path
from typing import Any

from ddtree_console.hostside import procfs, systemctl
from ddtree_console.hostside.roots import Roots


def code_dir() -> Path:
    """The folder that holds this host code."""
    return Path(__file__).resolve().parents[2]


def user_name() -> str:
    """Who we run as."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def systemd_version() -> str:
    """`252` or so; '' where there is no systemctl."""
    words = systemctl.run(["systemctl", "--version"], 5).out.decode("utf-8", "replace").split()
    return words[1] if len(words) > 1 else ""


def facts(roots: Roots) -> dict[str, Any]:
    """The hello message."""
    where = code_dir()
    return {
        "v": 1,
        "hash": where.name,
        "python": platform.python_version(),
        "uid": os.geteuid(),
        "user": user_name(),
        # Where the roots are moved, everything under them belongs to whoever runs this.
        "privileged": os.geteuid() == 0 or bool(roots.path),
        "boot": procfs.boot_id(roots),
        "systemd": systemd_version(),
        "where": str(where),
    }


def main(roots: Roots, args: list[str]) -> int:
    """One line on stdout."""
    sys.stdout.write(json.dumps(facts(roots)) + "\n")
    return 0
