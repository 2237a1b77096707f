"""Several pieces of work at the same time, each in a child of its own with one common deadline.

Children and not threads: what hangs in a driver or on a network folder can be killed, and a child may change its user.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ddtree_console.hostside import child

Work = Callable[[], Iterable[Mapping[str, Any]]]


def _child(work: Work, out: int, prepare: Callable[[], None]) -> None:
    """Never returns."""
    try:
        prepare()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        with os.fdopen(out, "wb") as pipe:
            try:
                for item in work():
                    pipe.write(json.dumps(item).encode() + b"\n")
                    pipe.flush()
            except Exception as error:  # whatever it is, the parent must hear of it
                why = f"{type(error).__name__}: {error}"
                pipe.write(json.dumps({"problem": why}).encode() + b"\n")
    finally:
        os._exit(0)


class _Job:
    """A running child. ended: it said all that it had to say."""

    def __init__(self, name: str, work: Work) -> None:
        self.name, self.buffer = name, b""
        prepare = child.die_with_us()
        self.pipe, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.pipe)
            _child(work, write, prepare)
        os.close(write)

    def take(self) -> tuple[list[dict[str, Any]], bool]:
        """(items that have arrived, whether it has ended)."""
        data = os.read(self.pipe, 1 << 16)
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        items = []
        for line in lines:
            try:
                items.append(json.loads(line))
            except ValueError:
                items.append({"problem": "it ended in the middle of a word"})
        return items, not data

    def end(self) -> int:
        """Kills it where it still runs, and reaps it; its status, -1 for one that the kernel does not let go."""
        os.close(self.pipe)
        try:
            os.kill(self.pid, signal.SIGKILL)
            for _ in range(20):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    return status
                time.sleep(0.005)
        except (ProcessLookupError, ChildProcessError):
            return 0
        return -1


def run(jobs: Mapping[str, Work], seconds: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """(job, item) as soon as each is there. {"problem": why} stands for what a job could not tell; {"end": True} is its
    last item, also of one that was late."""
    sys.stdout.flush()
    until = time.monotonic() + seconds
    running = {job.pipe: job for job in [_Job(name, work) for name, work in jobs.items()]}
    try:
        while running:
            ready, _, _ = select.select(list(running), [], [], max(0.0, until - time.monotonic()))
            if not ready:
                break
            for pipe in ready:
                job = running[pipe]
                items, ended = job.take()
                for item in items:
                    yield job.name, item
                if ended:
                    del running[pipe]
                    if job.buffer:
                        yield job.name, {"problem": "the process that looked was killed"}
                    job.end()
                    yield job.name, {"end": True}
    finally:
        late = list(running.values())
        for job in late:
            job.end()
    for job in late:
        yield job.name, {"problem": f"no answer within {seconds:g} s"}
        yield job.name, {"end": True}
