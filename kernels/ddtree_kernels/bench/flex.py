"""Compiled FlexAttention as a peer, in a process of its own: its compiler takes long, fails to lower shapes, may hang.

The processes compile while the rest is measured; each is timed only when it is asked to, so that no two things are
timed at once. `python -m ddtree_kernels.bench.flex CONTEXT NODES` is one such process.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

READY = "ready"
LIMIT = 45.0
"""Seconds from a peer's start to its readiness, and for its time after that."""


class Peer:
    """A process that says READY when it has compiled, and its microseconds when it has read a line."""

    def __init__(self, command: Sequence[str], limit: float = LIMIT) -> None:
        self.limit = limit
        self.began = time.monotonic()
        self.lines: queue.Queue[str] = queue.Queue()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,  # compilers start processes too; all end together
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put("")

    def _line(self, until: float) -> str:
        try:
            return self.lines.get(timeout=max(0.0, until - time.monotonic())) or "ended without a word"
        except queue.Empty:
            return f"not done after {time.monotonic() - self.began:.0f} s"

    def time_us(self) -> float | str:
        """Microseconds of one call, or why there are none; the process has ended afterwards."""
        try:
            said = self._line(self.began + self.limit)
            if said != READY:
                return said
            assert self.process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # ended after all: the next line says so
                self.process.stdin.write("go\n")
                self.process.stdin.flush()
            said = self._line(time.monotonic() + self.limit)
            try:
                return float(said)
            except ValueError:
                return said
        finally:
            self.end()

    def end(self) -> None:
        """Kills it and what it started; harmless where it has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def peer(context: int, nodes: int) -> Peer:
    """Starts to compile for one shape."""
    return Peer([sys.executable, "-m", "ddtree_kernels.bench.flex", str(context), str(nodes)])


def main(context: int, nodes: int) -> None:
    """The process's work: compile, wait to be asked, time."""
    from functools import partial

    import torch
    from torch.nn.attention.flex_attention import flex_attention

    from ddtree_kernels.bench import peers
    from ddtree_kernels.bench.inputs import random_tree
    from ddtree_kernels.bench.timing import graph_us
    from ddtree_kernels.ops.tree_attention import reference

    try:
        words = random_tree(nodes, nodes)[2].cuda()
        seen = peers.flex_mask(reference.tree_bits(words, nodes), context)
        attend = torch.compile(flex_attention, dynamic=False)
        calls = []
        for _ in range(2):
            q = torch.randn(1, nodes, 32, 128, device="cuda").bfloat16()
            k, v = (torch.randn(1, context + nodes, 8, 128, device="cuda").bfloat16() for _ in range(2))
            calls.append(partial(peers.flex, q, k, v, seen, attend))
        calls[0]()
        torch.cuda.synchronize()
        print(READY, flush=True)
        sys.stdin.readline()
        print(graph_us(calls, 5), flush=True)
    except Exception as error:  # a peer's compiler may fail in any way: it is told in one line
        print(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
