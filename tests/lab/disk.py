"""What a new host has on its disk: an upper layer over the machine's own `/` that hides what is the machine's."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SSHD = """Port 22
ListenAddress 0.0.0.0
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PrintMotd no
MaxStartups 100:30:200
Subsystem sftp /usr/lib/openssh/sftp-server
AcceptEnv LANG
"""

# what a shared kernel or a machine without hardware has no use for
MASKED = """
systemd-sysctl.service systemd-modules-load.service systemd-binfmt.service systemd-update-utmp.service
systemd-random-seed.service systemd-hwdb-update.service ldconfig.service systemd-journal-catalog-update.service
dev-hugepages.mount dev-mqueue.mount sys-fs-fuse-connections.mount sys-kernel-debug.mount sys-kernel-tracing.mount
sys-kernel-config.mount proc-sys-fs-binfmt_misc.automount systemd-journald-audit.socket systemd-networkd.service
systemd-networkd.socket systemd-udevd.service systemd-timesyncd.service systemd-remount-fs.service
cryptsetup.target integritysetup.target veritysetup.target tmp.mount systemd-sysusers.service
systemd-tmpfiles-setup-dev.service systemd-tmpfiles-clean.timer modprobe@.service systemd-logind.service
"""

# folders of which a host sees nothing: the machine's enabled units, keys, homes, logs
HIDDEN = """
etc/systemd/system etc/systemd/user etc/ssh etc/sudoers.d root home var/log var/lib/systemd etc/sysctl.d etc/cron.d
etc/tmpfiles.d etc/systemd/system-generators usr/lib/systemd/system-generators
usr/lib/systemd/system/multi-user.target.wants
"""

ENABLED = ("dbus.service", "ssh.service")

USERS = {"ops": 2000, "admin": 2001, "pwops": 2002}
"""ops has no sudo, admin has it without and pwops with a password."""

SUDOERS = """Defaults env_reset
Defaults secure_path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
root ALL=(ALL:ALL) ALL
admin ALL=(ALL:ALL) NOPASSWD: ALL
pwops ALL=(ALL:ALL) ALL
"""

# of the password "lab"; the others get "*", which is no password but not locked: sshd without PAM turns "!" away
LAB_PASSWORD = "$6$lab$8Didkn.UcNG/jLg7V7QIVX8TXEUMaHiIjiDSTr0wAgIU0I3PLx3iJU9IWSsHB2a53VxKmQZAq1Hyy09qF/fXn1"


@dataclass(frozen=True)
class Entry:
    """One file. uid: also the owner of the two folders above it (a home and its .ssh)."""

    text: str
    mode: int = 0o644
    uid: int = 0


@dataclass
class Disk:
    """All that the keeper lays out before the first boot; paths are relative to the host's root."""

    name: str
    cgroup: str
    size: str = "512m"
    lower: str = "/"
    hidden: list[str] = field(default_factory=HIDDEN.split)
    files: dict[str, Entry] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)


def disk_from(raw: dict[str, Any]) -> Disk:
    """The disk in the JSON that the keeper was given."""
    files = {path: Entry(**entry) for path, entry in raw.pop("files").items()}
    return Disk(**raw, files=files)


def new_disk(name: str, cgroup: str, login_key: str, host_key: str, addresses: dict[str, str], size: str) -> Disk:
    """A host as installed. login_key: public, for every user; host_key: private; addresses: host name -> IP."""
    disk = Disk(name, cgroup, size)
    disk.files = {**_identity(name, addresses), **_accounts(login_key), **_ssh(host_key), **_systemd()}
    disk.links = {f"etc/systemd/system/{unit}": "/dev/null" for unit in MASKED.split()}
    disk.links["etc/systemd/system/default.target"] = "/lib/systemd/system/multi-user.target"
    for unit in ENABLED:
        disk.links[f"etc/systemd/system/multi-user.target.wants/{unit}"] = f"/lib/systemd/system/{unit}"
    return disk


def _identity(name: str, addresses: dict[str, str]) -> dict[str, Entry]:
    hosts = "127.0.0.1 localhost\n" + "".join(f"{ip} {host}\n" for host, ip in addresses.items())
    return {
        "etc/hostname": Entry(name + "\n"),
        "etc/hosts": Entry(hosts),
        # its own and fixed: without one systemd sees a first boot and enables everything
        "etc/machine-id": Entry(uuid.uuid5(uuid.NAMESPACE_DNS, name).hex + "\n"),
        "etc/fstab": Entry(""),
        "etc/nsswitch.conf": Entry("passwd: files\ngroup: files\nshadow: files\nhosts: files\n"),
    }


def _accounts(login_key: str) -> dict[str, Entry]:
    people = "".join(f"{user}:x:{uid}:{uid}:{user}:/home/{user}:/bin/bash\n" for user, uid in USERS.items())
    groups = "".join(f"{user}:x:{uid}:\n" for user, uid in USERS.items())
    hashes = {"root": "*", **dict.fromkeys(USERS, "*"), "pwops": LAB_PASSWORD}
    entries = {
        "etc/passwd": Entry(Path("/etc/passwd").read_text() + people),
        "etc/group": Entry(Path("/etc/group").read_text() + groups),
        "etc/shadow": Entry("".join(f"{user}:{word}:19000:0:99999:7:::\n" for user, word in hashes.items()), 0o640),
        "etc/sudoers": Entry(SUDOERS, 0o440),
        "root/.ssh/authorized_keys": Entry(login_key, 0o600),
    }
    for user, uid in USERS.items():
        entries[f"home/{user}/.ssh/authorized_keys"] = Entry(login_key, 0o600, uid)
    return entries


def _ssh(host_key: str) -> dict[str, Entry]:
    return {"etc/ssh/sshd_config": Entry(SSHD), "etc/ssh/ssh_host_ed25519_key": Entry(host_key, 0o600)}


def _systemd() -> dict[str, Entry]:
    return {
        "etc/systemd/journald.conf.d/lab.conf": Entry("[Journal]\nStorage=persistent\nSystemMaxUse=64M\nAudit=no\n"),
        "etc/systemd/system.conf.d/lab.conf": Entry(
            "[Manager]\nDefaultTimeoutStopSec=10s\nDefaultLimitNOFILE=1024:4096\n"
        ),
    }
