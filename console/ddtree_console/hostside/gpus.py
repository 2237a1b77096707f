"""Asks the NVML child, with a deadline. A child that hangs is killed, and a new one is tried once it is gone."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

from ddtree_console.domain.snapshot import GpuReport
from ddtree_console.hostside import gpu_report
from ddtree_console.hostside.roots import Roots

DEADLINE = 5.0
# nvidia-smi, and the first answer of a child, also pay for the driver's initialisation: seconds where no persistence
# daemon runs.
FIRST_DEADLINE = 15.0


class GpuReader:
    """GPU readings of this host. `read()` for those who may wait; `ask`, `fileno`, `take`, `overdue` for a loop."""

    def __init__(self, roots: Roots, deadline: float = DEADLINE, first_deadline: float = FIRST_DEADLINE) -> None:
        self._roots = roots
        self._deadline, self._first = deadline, first_deadline
        self._child: subprocess.Popen[bytes] | None = None
        self._dying: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._answered = False
        self._hung = 0.0
        self.due: float | None = None
        """monotonic time by which the answer must be here; None when nothing was asked."""

    def read(self) -> GpuReport:
        """One reading, at most the deadline later; a hang or a dead child is the report's fault. Never raises."""
        problem = self.ask()
        while problem is None:
            left = (self.due or 0) - time.monotonic()
            if left <= 0 or not select.select([self.fileno()], [], [], left)[0]:
                return self.overdue()
            report = self.take()
            if report is not None:
                return report
        return problem

    def ask(self) -> GpuReport | None:
        """Starts a reading; the report at once when no child can be started."""
        if self._dying is not None:
            if self._dying.poll() is None:
                return self._hang_report()
            self._dying = None
        try:
            if self._child is None:
                self._start()
            assert self._child is not None and self._child.stdin is not None
            self._child.stdin.write(b"\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            return self._ended()
        except OSError as error:
            self._drop()
            return GpuReport(fault=f"cannot start the GPU reader: {error.strerror or error}")
        self.due = time.monotonic() + (self._deadline if self._answered else self._first)
        return None

    def fileno(self) -> int:
        """What to wait on for the answer; -1 without a child."""
        return -1 if self._child is None or self._child.stdout is None else self._child.stdout.fileno()

    def take(self) -> GpuReport | None:
        """The report once its line is whole; call it when `fileno` is readable."""
        data = os.read(self.fileno(), 1 << 20)
        if not data:
            return self._ended()
        self._buffer += data
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            return None
        report = gpu_report.report(self._roots, json.loads(line))
        self._buffer, self._answered, self.due, self._hung = rest, report.source == "nvml", None, 0.0
        return report

    def overdue(self) -> GpuReport:
        """Gives up on the reading that was asked for."""
        self._hung = self._hung or time.monotonic()
        child, self._child = self._child, None
        self.due, self._buffer, self._answered = None, b"", False
        if child is not None:
            child.kill()
            self._dying = child
            _close_pipes(child)
        return self._hang_report()

    def close(self) -> None:
        """Ends the child; one that hangs in the driver is left to the kernel."""
        self._drop()

    def _ended(self) -> GpuReport:
        status = self._drop()
        return GpuReport(source=self._source(), fault=f"the GPU reader ended (status {status}); it is started again")

    def _hang_report(self) -> GpuReport:
        for_s = time.monotonic() - self._hung
        stuck = ", and its process cannot be killed" if self._dying and self._dying.poll() is None else ""
        since = f" (for {for_s:.0f} s)" if for_s >= 10 else ""
        return GpuReport(source=self._source(), fault=f"the GPU driver does not answer{since}{stuck}")

    def _source(self) -> str:
        return "nvml" if self._roots.nvml else "nvidia-smi"

    def _start(self) -> None:
        script = str(Path(__file__).resolve().with_name("nvml_child.py"))
        self._child = subprocess.Popen(
            [sys.executable or "python3", "-I", "-B", script, "nvml" if self._roots.nvml else "smi"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._buffer, self._answered = b"", False

    def _drop(self) -> int | None:
        child, self._child = self._child, None
        self.due, self._buffer, self._answered = None, b"", False
        if child is None:
            return None
        child.kill()
        _close_pipes(child)
        try:
            return child.wait(1)
        except subprocess.TimeoutExpired:
            self._dying = child
            return None


def _close_pipes(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # stdin may hold a request that can no longer be flushed
                continue
