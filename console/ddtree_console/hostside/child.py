"""Children that must not outlive us, even when we are killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence

from ddtree_console.hostside import systemctl

PR_SET_PDEATHSIG = 1


def die_with_us() -> Callable[[], None]:
    """For a new child, between fork and exec: the kernel kills it when its parent ends."""
    import ctypes

    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return lambda: None
    parent = os.getpid()

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return ask


def start(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    """A child with both outputs in pipes and no input. OSError."""
    return subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=systemctl.environment(),
        preexec_fn=die_with_us(),
    )


def end(child: subprocess.Popen[bytes]) -> int:
    """Kills it, if it still runs; its status."""
    child.kill()
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    return child.wait()
