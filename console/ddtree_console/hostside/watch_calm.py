"""Whether anything can have happened to the units: a look at their cgroups, far cheaper than asking systemd."""

from __future__ import annotations

from collections.abc import Mapping

from ddtree_console.domain.snapshot import UnitState
from ddtree_console.hostside import procfs
from ddtree_console.hostside.roots import Roots

# Settled units are asked about this often all the same: an edited file or a kept counter shows in no cgroup.
ASK_ANYWAY = 3.0
_SETTLED = (("active", "running"), ("active", "exited"), ("inactive", "dead"), ("failed", "failed"))

Look = tuple[tuple[int, bytes], ...]


def settled(states: Mapping[str, UnitState]) -> bool:
    """Whether every unit rests in a state that only an event in its cgroup ends. A crash loop does not."""
    return bool(states) and all(
        (unit.active, unit.sub) in _SETTLED or unit.load == "not-found" for unit in states.values()
    )


def look(roots: Roots, states: Mapping[str, UnitState]) -> Look:
    """The cgroup of each unit: its inode (a restart makes a new one) and its processes."""
    return tuple(_one(roots, unit.control_group or f"/system.slice/{name}") for name, unit in states.items())


def _one(roots: Roots, control_group: str) -> tuple[int, bytes]:
    folder = procfs.cgroup_dir(roots, control_group)
    if folder is None:
        return 0, b""
    try:
        return folder.stat().st_ino, procfs.read(folder / "cgroup.procs") or b""
    except OSError:
        return 0, b""
