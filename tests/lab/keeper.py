"""One host's keeper: a process that owns the host's network and mount namespace, its disk and its boots.

Started by machine.py in namespaces of its own. It reads a Disk as one JSON line, then boots. It prints `boot N PID` for
each boot and `off STATUS` when the host is off, and boots again for each line on stdin; at its end everything is gone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from tests.lab.disk import Disk, disk_from
from tests.lab.procs import cgroup_reap, die_with_parent, enter_cgroup

STATE = Path("/mnt")
"""covered by the disk, in this mount namespace only."""
PACKAGES, PROJECT = sysconfig.get_paths()["purelib"], str(Path(__file__).resolve().parents[2])
"""read-only at /opt/lab-packages and /opt/lab-project of each host."""
INIT = Path(__file__).with_name("host-init.sh")


def lay_out(disk: Disk) -> None:
    """The disk: a tmpfs with the overlay's upper layer, which outlives reboots."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={disk.size},mode=0755", "tmpfs", str(STATE)], check=True)
    upper = STATE / "upper"
    for folder in (upper, STATE / "work", STATE / "root"):
        folder.mkdir()
    for name in disk.hidden:
        (upper / name).mkdir(parents=True, exist_ok=True)
        os.setxattr(upper / name, "trusted.overlay.opaque", b"y")
    (upper / "root").chmod(0o700)
    (upper / "var/log/journal").mkdir(parents=True)
    for name, entry in disk.files.items():
        path = upper / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(entry.text)
        path.chmod(entry.mode)
        if entry.uid:
            for owned in (path, path.parent, path.parent.parent):
                os.chown(owned, entry.uid, entry.uid)
    for name, target in disk.links.items():
        (upper / name).parent.mkdir(parents=True, exist_ok=True)
        (upper / name).symlink_to(target)


def boot(disk: Disk, number: int) -> subprocess.Popen[bytes]:
    """Starts the host's init; its clocks since boot start near 0, so that uptimes and boot timers are real."""
    cgroup = f"{disk.cgroup}/b{number}"
    Path(cgroup).mkdir(parents=True, exist_ok=True)

    def before_exec() -> None:
        enter_cgroup(cgroup)
        die_with_parent()

    clocks = (
        f"--boottime=-{int(time.clock_gettime(time.CLOCK_BOOTTIME))}",
        f"--monotonic=-{int(time.clock_gettime(time.CLOCK_MONOTONIC))}",
    )
    spaces = ("--time", *clocks, "--cgroup", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child")
    return subprocess.Popen(
        ["unshare", *spaces, "sh", str(INIT), str(STATE), disk.name, disk.lower, PACKAGES, PROJECT],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        preexec_fn=before_exec,
    )


def init_of(unshare: subprocess.Popen[bytes]) -> str:
    """The pid of the init that unshare forked; '' when unshare ended without one."""
    children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
    while unshare.poll() is None:
        pids = children.read_text().split()
        if pids:
            return pids[0]
        time.sleep(0.002)
    return ""


def main() -> None:
    """Keeps one host until stdin ends while it is off, or this process is killed."""
    print("netns", flush=True)
    disk = disk_from(json.loads(sys.stdin.readline()))
    lay_out(disk)
    number = 0
    while True:
        number += 1
        init = boot(disk, number)
        print("boot", number, init_of(init), flush=True)
        status = init.wait()
        cgroup_reap(f"{disk.cgroup}/b{number}")
        if status == -signal.SIGHUP:  # reboot(2) in a pid namespace; SIGINT is a power-off, the rest a crash
            continue
        print("off", status, flush=True)
        if not sys.stdin.readline():
            return


if __name__ == "__main__":
    main()
