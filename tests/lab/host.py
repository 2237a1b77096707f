"""A host with the faults that tests give it."""

from __future__ import annotations

import os
import platform
import signal
import time
from pathlib import Path

from tests.lab.machine import Machine
from tests.lab.procs import sh

HERE = Path(__file__).resolve().parent
NVML_LIB = f"/usr/lib/{platform.machine()}-linux-gnu/libnvidia-ml.so.1"
"""a folder that dlopen searches by default: no process needs an environment for it."""


class Host(Machine):
    """One host, and what can go wrong with it. Every fault is gone after `renew`."""

    # the network

    def link_down(self) -> None:
        """The cable is cut."""
        sh("ip", "link", "set", self.link, "down")

    def link_up(self) -> None:
        """The cable is back."""
        sh("ip", "link", "set", self.link, "up")

    def wire(self, delay_ms: float = 0.0, jitter_ms: float = 0.0, loss: float = 0.0) -> None:
        """A slow or lossy cable, each way. Only for a host that was made `wired`."""
        if self._cable is None:
            raise RuntimeError(f"{self.name} is not wired")
        self._tell(self._cable, f"{delay_ms} {jitter_ms} {loss}")
        time.sleep(0.02)  # the cable reads it beside its frames and answers nothing

    def drop(self, on: bool = True) -> None:
        """Packets vanish both ways while the link stays up: a client sees silence, not an error. Loopback works on."""
        chains = "".join(
            f"add chain inet lab {way} {{ type filter hook {way} priority 0; policy drop; }};"
            f"add rule inet lab {way} {side} lo accept;"
            for way, side in (("input", "iif"), ("output", "oif"))
        )
        self._nft("add table inet lab;" + chains if on else "")

    def refuse(self, port: int, on: bool = True) -> None:
        """Connections to that port are reset."""
        chain = "add chain inet lab input { type filter hook input priority 0; };"
        rule = f"add rule inet lab input tcp dport {port} reject with tcp reset"
        self._nft("add table inet lab;" + chain + rule if on else "")

    def _nft(self, rules: str) -> None:
        self.netns("nft", "flush ruleset;" + rules)

    # sshd

    def sshd(self, *settings: str) -> None:
        """Restarts sshd with these lines first in its configuration, such as `MaxSessions 4`."""
        config = self.path("/etc/ssh/sshd_config")
        config.write_text("".join(f"{line}\n" for line in settings) + config.read_text())
        self.exec("systemctl restart ssh")
        self.wait_ready()

    def new_host_key(self) -> None:
        """The host has another key than known_hosts says."""
        self.exec("rm /etc/ssh/ssh_host*; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key")
        self.exec("systemctl restart ssh")
        self.wait_ready()

    def freeze_sshd(self, on: bool = True) -> None:
        """sshd accepts connections and says nothing."""
        self.exec(f"systemctl kill -s {'STOP' if on else 'CONT'} --kill-who=main ssh")

    # clock, disk, power

    def skew(self, seconds: int) -> None:
        """The wall clock jumps, live, in every process that started after the first call."""
        offset = self.path("/etc/lab-skew")
        if not offset.exists():
            library = "/usr/local/lib/lab-skew.so"
            self.write(library, self._library("skew.so", HERE / "skew.c").read_bytes(), 0o755)
            offset.write_bytes(bytes(8))
            self.write("/etc/ld.so.preload", library + "\n")
        with offset.open("r+b") as file:  # in place: processes have it mapped
            file.write(seconds.to_bytes(8, "little", signed=True))

    def fill_disk(self) -> None:
        """Not one byte is left."""
        self.exec(
            "fallocate -l $(df --output=avail -B1 / | tail -1) /var/fill; "
            "dd if=/dev/zero of=/var/fill2 bs=4k 2>/dev/null; dd if=/dev/zero of=/var/fill3 bs=1 count=1 2>/dev/null",
            check=False,
        )

    def free_disk(self) -> None:
        """Undoes fill_disk."""
        self.exec("rm -f /var/fill /var/fill2 /var/fill3")

    def read_only(self, folder: str, on: bool = True) -> None:
        """Nothing below that folder can be written (its own mount, since `/` is busy)."""
        self.exec(f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder}" if on else f"umount {folder}")

    def reboot(self) -> None:
        """An orderly reboot; returns when sshd answers again."""
        self.exec("systemctl reboot", check=False)
        self.wait_boot()
        self.wait_ready()

    def crash(self) -> None:
        """Power loss: no shutdown; the disk stays."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait_boot()

    def power_on(self) -> None:
        """After crash; returns when sshd answers."""
        self.boot_again()
        self.wait_ready()

    # GPUs

    def nvml(self, text: str | None) -> None:
        """The GPUs as nvml/nvml_double.c describes them, read at each call; None: no driver is loaded."""
        if not self.path(NVML_LIB).exists():
            library = self._library("libnvidia-ml.so.1", HERE / "nvml/nvml_double.c", "-Wl,-soname,libnvidia-ml.so.1")
            self.write(NVML_LIB, library.read_bytes(), 0o755)
        if text is None:
            self.path("/etc/lab-nvml").unlink(missing_ok=True)
        else:  # whole or not at all: a reader may look at any time
            self.write("/etc/lab-nvml.new", text)
            self.path("/etc/lab-nvml.new").rename(self.path("/etc/lab-nvml"))

    def no_nvml(self) -> None:
        """The NVML library itself is gone."""
        self.path(NVML_LIB).unlink(missing_ok=True)

    def _library(self, name: str, source: Path, *flags: str) -> Path:
        built = self.setting.folder / name
        if not built.exists():
            sh("gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", *flags, "-o", str(built), str(source))
        return built
