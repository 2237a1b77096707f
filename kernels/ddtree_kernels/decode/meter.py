"""Throughput and acceptance of the last while, and SGLang's `Decode batch` line every so many rounds."""

from __future__ import annotations

import time
from collections.abc import Callable

from ddtree_kernels.decode.engine import Counts


class Meter:
    """Figures of the newest window of rounds. Fed by the decoding thread, read by any."""

    def __init__(
        self,
        log: Callable[[str], None],
        *,
        interval: int = 40,
        drafted: int = 0,
        graphs: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """interval: rounds of a window. drafted: tokens verified a round besides the root, for the accept rate."""
        self.tok_s = 0.0
        self.accept_length: float | None = None
        self.generated = 0
        self._log, self._interval, self._drafted, self._graphs, self._clock = log, interval, drafted, graphs, clock
        self._since = clock()
        self._tokens = self._rounds = self._committed = 0

    def step(self, tokens: int, total: Counts, *, running: int, waiting: int) -> None:
        """tokens more were generated; total: the server's figures so far."""
        now = self._clock()
        self.generated += tokens
        self._tokens += tokens
        rounds = total.rounds - self._rounds
        if rounds == 0:
            if tokens == 0:  # a prompt is being read: no time of decoding
                self._since, self._tokens = now, 0
            return
        passed = now - self._since
        if passed > 0:
            self.tok_s = self._tokens / passed
        self.accept_length = (total.committed - self._committed) / rounds
        if rounds < self._interval:
            return
        rate = f"accept rate: {(self.accept_length - 1) / self._drafted:.2f}, " if self._drafted else ""
        accept = f"accept len: {self.accept_length:.2f}, {rate}" if self._drafted else ""
        self._log(
            f"Decode batch, #running-req: {running}, {accept}cuda graph: {self._graphs}, "
            f"gen throughput (token/s): {self.tok_s:.2f}, #queue-req: {waiting}"
        )
        self._since, self._tokens = now, 0
        self._rounds, self._committed = total.rounds, total.committed

    def idle(self) -> None:
        """A request begins: the time since the last one was no decoding."""
        self._since, self._tokens = self._clock(), 0
