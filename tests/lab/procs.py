"""Running tools, and clearing up what they leave. Standard library only: the lab starts before any package is there."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1

# a user's PATH often lacks these, and the lab needs ip, sshd, nft from there
if "/usr/sbin" not in os.environ.get("PATH", "").split(":"):
    os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"

Done = subprocess.CompletedProcess[str]


def die_with_parent() -> None:
    """For preexec_fn: the kernel kills this child when its parent is gone, however that went."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def sh(*argv: str, check: bool = True, timeout: float = 60.0, stdin: str | None = None) -> Done:
    """Runs a tool to its end. CalledProcessError (with its stderr in the notes) unless check is False."""
    done = subprocess.run(
        argv,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        timeout=timeout,
    )
    if check and done.returncode:
        error = subprocess.CalledProcessError(done.returncode, argv, done.stdout, done.stderr)
        error.add_note(f"stderr: {done.stderr.strip()}\nstdout: {done.stdout.strip()[-2000:]}")
        raise error
    return done


def enter_cgroup(cgroup: str) -> None:
    """For preexec_fn: this child and all its own belong to that cgroup."""
    Path(cgroup, "cgroup.procs").write_text("0")


def cgroup_reap(cgroup: str, timeout: float = 10.0) -> None:
    """Kills every process in the cgroup's subtree and removes it; RuntimeError when it will not go in time."""
    top = Path(cgroup)
    if not top.is_dir():
        return
    end = time.monotonic() + timeout
    with contextlib.suppress(OSError):
        Path(top, "cgroup.kill").write_text("1")
    while not _removed(top):
        if time.monotonic() > end:
            raise RuntimeError(f"cgroup {cgroup} would not go away")
        time.sleep(0.02)


def _removed(top: Path) -> bool:
    gone = True
    for folder, _, _ in os.walk(top, topdown=False):
        try:
            Path(folder).rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            gone = False
    return gone
