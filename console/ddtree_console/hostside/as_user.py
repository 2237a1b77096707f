"""Reading done as the unit's user: what root may read says nothing about what the service may read."""

from __future__ import annotations

import json
import os
import pwd
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from ddtree_console.hostside import child

LIMIT = 32 * 1024 * 1024


class NotKnown(Exception):
    """Nothing was read; the text says why."""


def _account(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
    except KeyError:
        raise NotKnown(f"this host has no user {user}") from None


def become(user: str) -> None:
    """Makes this process that user for good: groups, ids, HOME, umask. '' stays as it is. NotKnown.

    Without root only one's own name is possible.
    """
    if not user:
        return
    account = _account(user)
    if os.geteuid() != account.pw_uid:
        if os.geteuid() != 0:
            me = pwd.getpwuid(os.geteuid()).pw_name
            raise NotKnown(f"only root can look as {user}, and this is {me}: allow `sudo -n`")
        os.initgroups(account.pw_name, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    os.environ.update(HOME=account.pw_dir, USER=account.pw_name, LOGNAME=account.pw_name)


def _child(user: str, work: Callable[[], Mapping[str, Any]], out: int, prepare: Callable[[], None]) -> None:
    """Never returns. Nothing of the parent may run in here, neither its handlers nor what it does at exit."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        become(user)
        prepare()  # the kernel forgets it when the ids change
        answer: Mapping[str, Any] = {"value": work()}
    except NotKnown as error:
        answer = {"why": str(error)}
    except BaseException as error:  # whatever it is, the parent must hear of it
        answer = {"why": f"{type(error).__name__}: {error}"}
    try:
        with os.fdopen(out, "wb") as pipe:
            pipe.write(json.dumps(answer).encode())
    finally:
        os._exit(0)


def _read(pipe: int, until: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size <= LIMIT:
        ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise NotKnown("it took too long (a disk or network folder that hangs?)")
        part = os.read(pipe, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
    raise NotKnown("the answer is too large")


def _end(pid: int) -> None:
    """Kills and reaps it. One that hangs in the kernel is left: it dies when the kernel lets go."""
    try:
        os.kill(pid, signal.SIGKILL)
        for _ in range(20):
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
            time.sleep(0.01)
    except (ProcessLookupError, ChildProcessError):
        pass


def call(user: str, work: Callable[[], Mapping[str, Any]], seconds: float = 20.0) -> dict[str, Any]:
    """What `work` gives (plain JSON types) when that user runs it in a process of its own. NotKnown says why not.

    user: name or number; '' = as this process runs. Call it without other threads; it ends within `seconds`.
    """
    sys.stdout.flush()
    prepare = child.die_with_us()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _child(user, work, write, prepare)
    os.close(write)
    try:
        raw = _read(read, time.monotonic() + seconds)
    finally:
        os.close(read)
        _end(pid)
    try:
        answer = json.loads(raw)
    except ValueError:
        raise NotKnown("the process that read it was killed") from None
    if "why" in answer:
        raise NotKnown(str(answer["why"]))
    value = answer.get("value")
    return value if isinstance(value, dict) else {}
