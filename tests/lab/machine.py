"""A host's life and its doors: the back door is what is true on it, the front door is SSH."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import IO

from tests.lab.disk import new_disk
from tests.lab.procs import Done, cgroup_reap, die_with_parent, sh

ROOT = Path(__file__).resolve().parents[2]


class Setting:
    """What all hosts of a lab share."""

    def __init__(self, folder: Path, cgroup: str, number: int, disk_size: str) -> None:
        self.folder, self.cgroup, self.disk_size = folder, cgroup, disk_size
        self.bridge, self.net = f"lb{number}", f"10.77.{number}"
        self.key = folder / "id"
        self.known_hosts = folder / "known_hosts"
        self.addresses: dict[str, str] = {}

    def new_key(self, name: str) -> Path:
        """An ed25519 key without a passphrase, made once a name."""
        key = self.folder / name
        if not key.exists():
            sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key))
        return key

    def public(self, name: str) -> str:
        """The public half of a key made by new_key."""
        return self.new_key(name).with_suffix(".pub").read_text()


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise RuntimeError("not a pipe")
    return stream


class Machine:
    """One host. `pid` is its init as this process sees it, 0 while it is off."""

    def __init__(self, setting: Setting, name: str, ip: str, wired: bool = False) -> None:
        self.setting, self.name, self.ip, self.wired = setting, name, ip, wired
        self.link = f"{setting.bridge}-{name}"
        self.pid = 0
        self.boots = 0
        self._keeper: subprocess.Popen[str] | None = None
        self._cable: subprocess.Popen[str] | None = None

    @property
    def key(self) -> Path:
        """The private key that every user of the host accepts."""
        return self.setting.key

    @property
    def known_hosts(self) -> Path:
        """A known_hosts file with this lab's hosts."""
        return self.setting.known_hosts

    def start(self) -> None:
        """A new disk and a first boot; returns before sshd answers."""
        self._keeper = self._child(
            "unshare", "--mount", "--net", "--propagation", "private", sys.executable, "-m", "tests.lab.keeper"
        )
        if self._line() != "netns":
            raise RuntimeError(f"{self.name}: its keeper did not start (LAB_DEBUG=1 shows why)")
        self._connect()
        setting = self.setting
        disk = new_disk(
            self.name,
            f"{setting.cgroup}/{self.name}",
            setting.public("id"),
            setting.new_key(f"hostkey-{self.name}").read_text(),
            setting.addresses,
            setting.disk_size,
        )
        self._tell(self._keeper, json.dumps(asdict(disk)))
        self.wait_boot()

    def _child(self, *argv: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            argv,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("LAB_DEBUG") else subprocess.DEVNULL,
            text=True,
            preexec_fn=die_with_parent,
        )

    def _connect(self) -> None:
        keeper = str(self._running().pid)
        if self.wired:
            far = f"{self.setting.bridge}w-{self.name}"
            self._cable = self._child(sys.executable, str(Path(__file__).with_name("wire.py")), self.link, far)
            if _pipe(self._cable.stdout).readline() != "wire\n":
                raise RuntimeError(f"{self.name}: no cable (LAB_DEBUG=1 shows why)")
            sh("ip", "link", "set", far, "netns", keeper, "name", "eth0")
        else:
            sh("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", keeper)
        sh("ip", "link", "set", self.link, "master", self.setting.bridge, "up")
        self.netns("ip", "link", "set", "lo", "up")
        self.netns("ip", "addr", "add", f"{self.ip}/24", "dev", "eth0")
        # one MAC for good: a renewed host must not hide behind its peers' stale ARP entries
        mac = f"02:4c:41:42:00:{int(self.ip.rsplit('.', 1)[1]):02x}"
        self.netns("ip", "link", "set", "eth0", "address", mac, "up")

    def _running(self) -> subprocess.Popen[str]:
        if self._keeper is None:
            raise RuntimeError(f"{self.name} is not started")
        return self._keeper

    def _line(self) -> str:
        return _pipe(self._running().stdout).readline().rstrip("\n")

    @staticmethod
    def _tell(child: subprocess.Popen[str], line: str) -> None:
        stdin = _pipe(child.stdin)
        stdin.write(line + "\n")
        stdin.flush()

    def wait_boot(self) -> None:
        """Until the keeper says that the host has an init, or is off."""
        while line := self._line():
            match line.split():
                case ["boot", number, pid]:
                    self.boots, self.pid = int(number), int(pid)
                    return
                case ["off", *_]:
                    self.pid = 0
                    return
        raise RuntimeError(f"{self.name}: its keeper ended (LAB_DEBUG=1 shows why)")

    def boot_again(self) -> None:
        """Power on, after `off`."""
        self._tell(self._running(), "boot")
        self.wait_boot()

    def wait_ready(self, timeout: float = 20.0) -> None:
        """Until sshd answers with its banner; TimeoutError has the end of the journal."""
        end = time.monotonic() + timeout
        while not self._banner():
            if not Path(f"/proc/{self.pid}").exists():
                raise RuntimeError(f"{self.name}: its init died (LAB_DEBUG=1 shows why)")
            if time.monotonic() > end:
                raise TimeoutError(f"{self.name}: no sshd\n{self.journal(30)}")
            time.sleep(0.02)

    def _banner(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.ip, 22), 0.5) as stream:
            stream.settimeout(1)
            return stream.recv(4) == b"SSH-"
        return False

    def stop(self) -> None:
        """The host and its disk are gone."""
        if self._keeper is None:
            return
        for child in filter(None, (self._keeper, self._cable)):
            child.kill()
            child.wait()
        cgroup_reap(f"{self.setting.cgroup}/{self.name}")
        self._keeper = self._cable = None
        self.pid = 0
        sh("ip", "link", "del", self.link, check=False)

    def renew(self) -> None:
        """A new machine at the same address: fresh disk, fresh boot."""
        self.stop()
        self.start()
        self.wait_ready()

    # the back door

    def exec(self, command: str, *, check: bool = True, timeout: float = 60.0, stdin: str | None = None) -> Done:
        """A shell command as root in all of the host's namespaces, not through sshd."""
        clean = ("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/root", "sh", "-c", command)
        return sh("nsenter", "-t", str(self.pid), "-a", *clean, check=check, timeout=timeout, stdin=stdin)

    def netns(self, *argv: str, check: bool = True) -> Done:
        """A tool of this machine, in the host's network only; works while the host is off."""
        return sh("nsenter", "-t", str(self._running().pid), "-n", *argv, check=check)

    def path(self, path: str) -> Path:
        """A path on the host's disk as this process reaches it; only while the host is on."""
        return Path(f"/proc/{self.pid}/root/{path.lstrip('/')}")

    def write(self, path: str, data: str | bytes, mode: int = 0o644) -> None:
        """A whole file, with its folders."""
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.encode() if isinstance(data, str) else data)
        target.chmod(mode)

    def journal(self, lines: int = 200, unit: str = "") -> str:
        """The end of this boot's journal, as text."""
        only = f"-u {unit} " if unit else ""
        return self.exec(f"journalctl --no-pager -b {only}-n {lines}", check=False).stdout

    # the front door

    def ssh_argv(self, *command: str, user: str = "root", options: tuple[str, ...] = ()) -> list[str]:
        """OpenSSH's command line to this host, strict about its key."""
        settings = (
            "IdentitiesOnly=yes",
            "BatchMode=yes",
            f"UserKnownHostsFile={self.known_hosts}",
            "StrictHostKeyChecking=yes",
            "ConnectTimeout=5",
            *options,
        )
        flags = [part for setting in settings for part in ("-o", setting)]
        return ["ssh", "-F", "none", "-i", str(self.key), *flags, f"{user}@{self.ip}", *command]

    def ssh(
        self, command: str, *, user: str = "root", check: bool = True, timeout: float = 60.0, stdin: str | None = None
    ) -> Done:
        """A command through sshd."""
        return sh(*self.ssh_argv(command, user=user), check=check, timeout=timeout, stdin=stdin)
