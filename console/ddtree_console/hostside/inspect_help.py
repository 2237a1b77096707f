"""`--help` of a program whose source tells no flags: run as the unit's user, without GPUs, for a short time."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from ddtree_console.hostside import child
from ddtree_console.hostside.inspect_paths import fit_for_root, only_roots

SECONDS = 8.0
LARGEST = 1 << 20
# with these `--help` would go to a script that takes it for something else, and starts what it starts
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "env", "sudo", "nice", "numactl", "taskset", "xargs", "setsid"})


def argv_of(command: Sequence[str]) -> list[str]:
    """The program without its arguments, and `--help`; [] for what may not be asked so (a shell line, `-c`)."""
    if not command or PurePosixPath(command[0]).name in SHELLS or not Path(command[0]).is_absolute():
        return []
    name = PurePosixPath(command[0]).name
    words = [command[0]]
    if name.startswith("python"):
        rest = list(command[1:])
        while rest and rest[0] in ("-u", "-B", "-s", "-E", "-I", "-O", "-P"):
            words.append(rest.pop(0))
        if len(rest) >= 2 and rest[0] == "-m":
            words += rest[:2]
        elif rest and rest[0].endswith(".py"):
            words.append(rest[0])
        else:
            return []
    return [*words, "--help"]


def run(argv: Sequence[str], env: Mapping[str, str], workdir: str, seconds: float = SECONDS) -> str:
    """What it prints. OSError or ValueError say why there is nothing; everything it started is ended."""
    if os.geteuid() == 0:
        files = [argv[0], *(word for word in argv[1:] if word.startswith("/"))]
        loose, env = fit_for_root(argv[0], env)
        loose = loose or next((said for path in files if (said := only_roots(path))), "")
        if not loose and workdir and "-m" in argv:
            loose = only_roots(workdir)
        if loose:
            raise ValueError(f"it is not run as root: {loose}")
    given = {**env, "COLUMNS": "1000", "CUDA_VISIBLE_DEVICES": ""}
    end = time.monotonic() + seconds
    process = subprocess.Popen(
        list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=given,
        cwd=workdir or "/", start_new_session=True, preexec_fn=child.die_with_us(),
    )  # fmt: skip
    try:
        out = _read(process, end)
        status = process.wait(max(0.1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise ValueError(f"{' '.join(argv)} did not end within {seconds:g} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    text = out.decode("utf-8", "replace")
    if status != 0:
        lines = text.strip().splitlines()
        raise ValueError(f"{' '.join(argv)} ended with status {status}: {lines[-1] if lines else 'no word'}")
    return text


def _read(process: subprocess.Popen[bytes], end: float) -> bytes:
    assert process.stdout is not None
    out = b""
    while len(out) < LARGEST:
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise subprocess.TimeoutExpired(process.args, 0)
        part = os.read(process.stdout.fileno(), 1 << 16)
        if not part:
            return out
        out += part
    return out
