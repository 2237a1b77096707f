"""Where things are on this host. One option moves them all, so that demo and tests never touch the real ones."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class Roots:
    """Host paths as text; docs/PROTOCOL.md says what each holds. nvml False: NVML is not tried."""

    etc: str = "/etc"
    run: str = "/run"
    var: str = "/var/lib/ddtree-console"
    opt: str = "/opt/ddtree-console"
    cgroup: str = "/sys/fs/cgroup"
    proc: str = "/proc"
    boot_id: str = "/proc/sys/kernel/random/boot_id"
    nvml: bool = True
    path: str = ""
    """the file this came from ('' = defaults): handed on to the transaction's own command line."""

    def committed(self, unit: str) -> Path:
        """The committed unit file."""
        return Path(self.etc, "systemd/system", unit)

    def trial(self, unit: str) -> Path:
        """The unit file on trial; it outranks the committed one and does not survive a reboot."""
        return Path(self.run, "systemd/system.control", unit)

    def kept(self, unit: str) -> Path:
        """Folder of releases, history, events and state of a unit."""
        return Path(self.var, unit)

    def live(self, unit: str) -> Path:
        """Folder of plan.json and request.json of a unit."""
        return Path(self.run, "ddtree-console", unit)

    def locks(self) -> Path:
        """Folder of the flocks."""
        return Path(self.run, "ddtree-console/locks")

    def secrets(self) -> Path:
        """The host's secrets: NAME=value lines, 0600, root."""
        return Path(self.etc, "ddtree-console/secrets.env")


def load(path: str) -> Roots:
    """Roots from a JSON file; '' gives the defaults. ValueError or OSError name the file."""
    if not path:
        return Roots()
    raw = json.loads(Path(path).read_text("utf-8"))
    if not isinstance(raw, dict):
        raise ValueError(f"{path}: not an object")
    known = {f.name for f in fields(Roots)} - {"path"}
    return Roots(path=path, **{k: v for k, v in raw.items() if k in known})
