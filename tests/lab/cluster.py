"""A lab: a bridge, keys, and hosts on it. Only inside `lab.py run`, which owns all that it makes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.lab.host import Host
from tests.lab.machine import Setting
from tests.lab.procs import cgroup_reap, sh


class Lab:
    """Hosts h1 (10.77.NUMBER.11), h2, ... and this process at .1. Labs with different numbers can be side by side.

    wired: names of hosts whose cable can be slow.
    """

    def __init__(
        self, names: Sequence[str] = ("h1", "h2"), wired: Sequence[str] = (), number: int = 0, disk: str = "512m"
    ) -> None:
        if "LAB_CGROUP" not in os.environ:
            raise RuntimeError("not inside the lab: python tests/lab/lab.py run CMD")
        folder = Path(os.environ["LAB_DIR"], f"lab{number}")
        self.setting = Setting(folder, f"{os.environ['LAB_CGROUP']}/lab{number}", number, disk)
        self.setting.addresses = {name: f"{self.setting.net}.{11 + i}" for i, name in enumerate(names)}
        self.hosts = {name: Host(self.setting, name, ip, name in wired) for name, ip in self.setting.addresses.items()}

    def __enter__(self) -> Self:
        setting = self.setting
        Path(setting.cgroup).mkdir(parents=True, exist_ok=True)
        setting.folder.mkdir(mode=0o700)
        try:
            sh("ip", "link", "add", setting.bridge, "type", "bridge", "forward_delay", "0", "stp_state", "0")
            sh("ip", "addr", "add", f"{setting.net}.1/24", "dev", setting.bridge)
            sh("ip", "link", "set", setting.bridge, "up")
            for host in self.hosts.values():
                host.start()
            keys = {host: setting.public(f"hostkey-{host.name}").split()[:2] for host in self.hosts.values()}
            setting.known_hosts.write_text("".join(f"{host.ip} {' '.join(key)}\n" for host, key in keys.items()))
            for host in self.hosts.values():
                host.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Every host is gone."""
        for host in self.hosts.values():
            with contextlib.suppress(Exception):
                host.stop()
        cgroup_reap(self.setting.cgroup)
        sh("ip", "link", "del", self.setting.bridge, check=False)
