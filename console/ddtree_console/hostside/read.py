"""The `read` command: what a unit is on disk, in memory and in what we keep."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from ddtree_console.domain.snapshot import UnitState
from ddtree_console.hostside import durable, kept, procfs, releases, request_json, systemctl
from ddtree_console.hostside.roots import Roots


def environment_names(roots: Roots, pid: int) -> dict[str, str]:
    """Names of a process's environment, without values: those may be secrets."""
    raw = procfs.read(Path(roots.proc, str(pid), "environ")) or b""
    names = (entry.partition(b"=")[0].decode("utf-8", "replace") for entry in raw.split(b"\0") if entry)
    return dict.fromkeys(sorted(names), "")


def release(roots: Roots, unit: str, name: str, state: releases.State) -> dict[str, Any]:
    """One kept release; committed_at is None for one that never held."""
    candidate = kept.read(roots, unit, name)
    text = candidate.unit_text if candidate else ""
    held = state.held.get(name, {})
    return {
        "release": name,
        "profile_name": candidate.profile_name if candidate else "",
        "profile": dict(candidate.profile) if candidate else {},
        "unit_sha256": hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest(),
        "held": name in state.held,
        "committed_at": held.get("wall"),
    }


def answer(roots: Roots, unit: str) -> dict[str, Any]:
    """The whole answer. A unit that systemd does not know has an empty text."""
    now = systemctl.show([unit]).get(unit) or UnitState(unit)
    state = releases.load(roots, unit)
    drop_ins = [{"path": path, "text": durable.read_text(Path(path)) or ""} for path in now.drop_ins]
    return {
        "unit": unit,
        "fragment": now.fragment,
        "text": (durable.read_text(Path(now.fragment)) if now.fragment else "") or "",
        "drop_ins": drop_ins,
        "enabled": now.enabled,
        "committed": state.committed,
        "releases": [release(roots, unit, name, state) for name in kept.names(roots, unit)],
        "kept_text": (kept.unit_text(roots, unit, state.committed) if state.committed else "") or "",
        "edited": list(releases.edited(roots, unit, state)),
        "way_back": kept.way_back_name(roots, unit),
        "cmdline": procfs.cmdline(roots, now.main_pid) if now.main_pid else [],
        "environment": environment_names(roots, now.main_pid) if now.main_pid else {},
    }


def main(roots: Roots, args: list[str]) -> int:
    """One line on stdout."""
    try:
        found = answer(roots, request_json.unit_of(request_json.read()))
    except ValueError as error:
        return request_json.refuse(2, str(error), "correct the request")
    except OSError as error:
        return request_json.refuse(5, str(error), "see `check`")
    # A surrogate (a byte that is not UTF-8) must come back as it was: ASCII JSON keeps it.
    sys.stdout.write(json.dumps(found) + "\n")
    return 0
