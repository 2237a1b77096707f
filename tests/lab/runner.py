"""Runs a command in a private network, mount and pid namespace.

When it ends, however it ends, the kernel takes every process, mount, veth and bridge of the lab with it. Only empty
cgroups and a key folder can stay; they are removed here, or by the next run.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from tests.lab.procs import cgroup_reap, die_with_parent, enter_cgroup

NEEDED = ("unshare", "nsenter", "ip", "nft", "sshd", "ssh", "ssh-keygen", "pivot_root", "mount", "gcc", "sudo")
SYSTEMD = Path("/lib/systemd/systemd")
CANNOT = 77
"""exit status of `run` on a machine that cannot hold a lab."""


def cgroup_top() -> Path | None:
    """Where cgroup2 is mounted: on its own, or beside v1 hierarchies."""
    for place in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")):
        if (place / "cgroup.procs").exists():
            return place
    return None


def why_not() -> str | None:
    """The reason why this machine cannot hold a lab, or None. Really tries namespaces, overlay and veth."""
    if sys.platform != "linux":
        return "not Linux"
    if os.geteuid() != 0:
        return "not root (the lab makes namespaces and mounts)"
    missing = [tool for tool in NEEDED if not shutil.which(tool)]
    if missing:
        return "missing: " + ", ".join(missing)
    if not SYSTEMD.exists():
        return f"no {SYSTEMD}"
    top = cgroup_top()
    if top is None:
        return "no cgroup2 mount"
    if os.statvfs(top).f_flag & os.ST_RDONLY or not os.access(top, os.W_OK):
        return f"{top} is read-only"
    return _no_namespaces()


def _no_namespaces() -> str | None:
    script = (
        "mount -t tmpfs t /mnt && cd /mnt && mkdir u w r && "
        "mount -t overlay o -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/r && "
        "ip link add v0 type veth peer name v1"
    )
    argv = ["unshare", "--mount", "--net", "--pid", "--cgroup", "--fork", "sh", "-c", script]
    done = subprocess.run(argv, capture_output=True, encoding="utf-8", errors="replace", check=False)
    if done.returncode == 0:
        return None
    return "namespaces: " + (done.stderr.strip().splitlines() or ["no reason given"])[-1]


def inside() -> bool:
    """True in a process that `run` started."""
    return "LAB_CGROUP" in os.environ


def hold(folder: Path) -> int:
    """A descriptor that says "in use" for as long as this process lives."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def _in_use(folder: Path) -> bool:
    """By its lock, not by a pid: a lab may look from within another pid namespace."""
    try:
        os.close(hold(folder))
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def reap_stale() -> None:
    """Removes what a lab whose owner was killed has left: its cgroup, any process in it, its key folder."""
    top = cgroup_top()
    for place in filter(None, (top, Path(tempfile.gettempdir()))):
        for left in place.glob("lab-*-*"):
            if not left.is_dir() or _in_use(left):
                continue
            if place == top:
                cgroup_reap(str(left))
            else:
                shutil.rmtree(left, ignore_errors=True)


def run(argv: Sequence[str]) -> int:
    """Runs the command in a lab's namespaces and returns its exit status (128 + signal when killed)."""
    reason = why_not()
    if reason:
        print("lab:", reason, file=sys.stderr)
        return CANNOT
    reap_stale()
    tag = f"lab-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    cgroup, folder = Path(str(cgroup_top()), tag), Path(tempfile.gettempdir(), tag)
    cgroup.mkdir()
    folder.mkdir(mode=0o700)
    held = [hold(cgroup), hold(folder)]

    def before_exec() -> None:
        enter_cgroup(str(cgroup))
        die_with_parent()

    child = subprocess.Popen(
        [
            *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *("--propagation", "private", "bash", "-c", 'ip link set lo up; "$@"; exit $?', "lab", *argv),
        ],
        env={**os.environ, "LAB_CGROUP": str(cgroup), "LAB_DIR": str(folder)},
        preexec_fn=before_exec,
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command gets it from the terminal
    signal.signal(signal.SIGTERM, lambda *_: child.kill())  # unshare --fork ignores TERM while it waits
    status = child.wait()
    for descriptor in held:
        os.close(descriptor)
    cgroup_reap(str(cgroup))
    shutil.rmtree(folder, ignore_errors=True)
    return status if status >= 0 else 128 - status
