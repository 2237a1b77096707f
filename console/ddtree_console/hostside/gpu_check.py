"""`gpu_check`: runs the carried GPU check on a free GPU with a service's interpreter, as its user, under its locks."""

from __future__ import annotations

import os
import pwd
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ddtree_console.domain.snapshot import Gpu, GpuReport
from ddtree_console.hostside import as_user, child, locks, reply, request_json
from ddtree_console.hostside.gpus import GpuReader
from ddtree_console.hostside.hostclock import Clock
from ddtree_console.hostside.roots import Roots
from ddtree_console.hostside.watch_config import is_unit

GRACE = 10.0
"""Seconds beyond the check's own limit after which it is killed."""
SETTLE = 5.0
"""Seconds in which a driver may take processes and memory from its lists after they ended."""
SLACK = 64 * 1024 * 1024


class Refused(Exception):
    """Why nothing was started."""

    def __init__(self, code: int, cause: str, next_step: str, **more: Any) -> None:
        super().__init__(cause)
        self.code, self.next_step, self.more = code, next_step, more


def device(report: GpuReport, index: int) -> Gpu:
    """The GPU of that index, free and healthy; Refused names what is wrong with it."""
    if report.fault:
        raise Refused(7, report.fault, "mend the driver")
    found = next((g for g in report.gpus if g.index == index), None)
    if found is None:
        raise Refused(
            7, f"there is no GPU {index}", f"one of: {', '.join(str(g.index) for g in report.gpus) or 'none'}"
        )
    if found.fault:
        raise Refused(7, f"GPU {index}: {found.fault}", "mend or reset the GPU")
    if found.processes:
        first = found.processes[0]
        who = f"{first.name or 'a process'} (pid {first.pid}{f', {first.unit}' if first.unit else ''})"
        raise Refused(7, f"GPU {index} is in use by {who}", "choose a free GPU, or stop what uses it")
    return found


def environment(raw: Mapping[str, Any], gpu: Gpu, folder: Path) -> dict[str, str]:
    """The unit's own variables, the GPU, and the carried folder first in PYTHONPATH; nothing of ours."""
    given = raw.get("env")
    env = {str(k): str(v) for k, v in given.items()} if isinstance(given, dict) else {}
    env.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    env["PYTHONPATH"] = ":".join(x for x in (str(folder), env.get("PYTHONPATH", "")) if x)
    env.update(
        CUDA_DEVICE_ORDER="PCI_BUS_ID", CUDA_VISIBLE_DEVICES=gpu.uuid or str(gpu.index), PYTHONDONTWRITEBYTECODE="1"
    )
    user = str(raw.get("user") or "")
    try:
        account = pwd.getpwnam(user) if user else pwd.getpwuid(os.geteuid())
    except KeyError:
        raise Refused(7, f"this host has no user {user}", "correct `user` in the profile") from None
    env.update(HOME=account.pw_dir, USER=account.pw_name, LOGNAME=account.pw_name)
    return env


def _prepare(user: str, die: Callable[[], None]) -> Callable[[], None]:
    def prepare() -> None:
        as_user.become(user)
        os.setsid()
        die()

    return prepare


def start(raw: Mapping[str, Any], gpu: Gpu, folder: Path) -> subprocess.Popen[bytes]:
    """The check's parent process, in a session of its own. Refused."""
    python, seconds = str(raw.get("python") or "python3"), float(raw.get("limit") or 300)
    argv = [python, "-m", "ddtree_kernels.gpu_check", "--memory-mb", str(int(raw.get("memory_mb") or 2000))]
    try:
        return subprocess.Popen(
            [*argv, "--limit", f"{seconds:g}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(raw, gpu, folder),
            cwd="/",
            preexec_fn=_prepare(str(raw.get("user") or ""), child.die_with_us()),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Refused(7, f"cannot start {python}: {error}", "correct `python` or `user` in the profile") from error


def follow(running: subprocess.Popen[bytes], limit: float) -> str:
    """Copies its lines to our stdout; '' at its end, else why it was killed. Ends it when our stdin closes."""
    assert running.stdout is not None
    end, why = time.monotonic() + limit + GRACE, ""
    with selectors.SelectSelector() as selector:  # stdin may be anything
        selector.register(running.stdout, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        while not why:
            ready = {key.fd for key, _ in selector.select(max(0.0, end - time.monotonic()))}
            if running.stdout.fileno() in ready:
                data = os.read(running.stdout.fileno(), 1 << 16)
                if not data:
                    break
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
            elif 0 in ready and not os.read(0, 1 << 10):
                why = "the console went away"
            elif time.monotonic() >= end:
                why = f"no end within {limit:g} s"
    return why


def end(running: subprocess.Popen[bytes], why: str) -> dict[str, Any]:
    """Ends what is left of it; its last words."""
    if why:
        running.terminate()  # it ends its own children; those that hang die with it
    try:
        _, err = running.communicate(timeout=GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        _, err = running.communicate()
    tail = err.decode("utf-8", "replace").strip().splitlines()
    return {"status": running.returncode, "why": why, "tail": tail[-1][:400] if tail else ""}


def left_over(read: Callable[[], GpuReport], before: Gpu, clock: Clock, settle: float) -> str:
    """What the check left on the GPU once the driver had time to notice; '' for nothing."""
    until, found = clock.boottime() + settle, "?"
    while found:
        report = read()
        now = next((g for g in report.gpus if g.index == before.index), None)
        if report.fault or now is None or now.fault:
            return (now.fault if now is not None else None) or report.fault or f"GPU {before.index} is gone"
        more = (now.used or 0) - (before.used or 0)
        if now.processes:
            found = f"pid {now.processes[0].pid} still uses GPU {before.index}"
        else:
            found = f"{more / 1e6:.0f} MB more in use than before" if more > SLACK else ""
        if found and clock.boottime() >= until:
            return found
        if found:
            clock.sleep(0.25)
    return ""


def check(roots: Roots, raw: Mapping[str, Any], clock: Clock) -> int:
    """Looks, locks, runs, looks again. Refused."""
    folder = Path(roots.opt, str(raw.get("hash") or ""))
    if not raw.get("hash") or "/" in str(raw["hash"]) or not folder.is_dir():
        raise Refused(2, f"{folder} is not there", "carry the kernels first")
    if not isinstance(raw.get("gpu"), int):
        raise Refused(2, "no GPU is named", "--gpu INDEX")
    index, units = int(raw["gpu"]), [str(u) for u in raw.get("units") or () if is_unit(u)]
    reader = GpuReader(roots)
    info = {"who": raw.get("who") or "", "from": raw.get("from") or "", "why": "gpu-check", "since": time.time()}
    held = locks.Held()
    try:
        for name in (*sorted(units), f"gpu-{index}"):
            taken = locks.acquire(roots, name, (), info, clock)
            held.add_all(taken)
        before = device(reader.read(), index)
        reply.say({"began": index, "gpu": before.name, "uuid": before.uuid})
        running = start(raw, before, folder)
        limit = float(raw.get("limit") or 300)
        told = end(running, follow(running, limit))
        left = left_over(reader.read, before, clock, float(raw.get("settle") or SETTLE))
        return reply.say({"ended": {**told, "left": left}})
    except locks.Busy as busy:
        raise Refused(6, str(busy), "wait until it ends", holder=busy.holder) from busy
    finally:
        held.release()
        reader.close()


def main(roots: Roots, args: list[str]) -> int:
    """A line a result, then how it ended and what it left."""
    try:
        return check(roots, request_json.read_first(), Clock())
    except Refused as refused:
        return reply.refuse(refused.code, str(refused), refused.next_step, **refused.more)
    except (ValueError, TypeError) as error:
        return reply.refuse(2, f"gpu-check: {error}", "use a console of this version")
    except OSError as error:
        return reply.refuse(7, f"gpu-check: {error}", "see `check`")
