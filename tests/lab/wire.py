"""A slow, lossy cable in user space, for kernels without netem: frames between two interfaces, delayed or dropped.

    wire.py IF_A IF_B          then a line on stdin sets it: "DELAY_MS JITTER_MS LOSS", as in "50 5 0.01"

Both interfaces are TAP devices that it makes: a TAP has no offloads unless asked for, so frames are whole, MTU-sized
and checksummed. Each direction keeps its order.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import selectors
import struct
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
STDIN = 0


def tap(name: str) -> int:
    """A new TAP interface of that name; its file descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return descriptor


class Wire:
    """Frames on their way. delay and jitter in milliseconds, loss from 0 to 1, each way."""

    def __init__(self, one: int, other: int) -> None:
        self.delay, self.jitter, self.loss = 0.0, 0.0, 0.0
        self._queue: list[tuple[float, int, int, bytes]] = []
        self._count = 0
        self._last = {one: 0.0, other: 0.0}
        self._selector = selectors.DefaultSelector()
        self._selector.register(one, selectors.EVENT_READ, other)
        self._selector.register(other, selectors.EVENT_READ, one)
        self._selector.register(STDIN, selectors.EVENT_READ, None)
        os.set_blocking(STDIN, False)

    def run(self) -> None:
        """For ever."""
        while True:
            self._deliver()
            wait = max(0.0, self._queue[0][0] - time.monotonic()) if self._queue else None
            for key, _ in self._selector.select(wait):
                if key.data is None:
                    self._set()
                else:
                    self._take(int(key.fd), int(key.data))

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._queue and self._queue[0][0] <= now:
            _, _, target, frame = heapq.heappop(self._queue)
            try:
                os.write(target, frame)
            except OSError:  # link down or full: lost, as on a wire
                continue

    def _take(self, source: int, target: int) -> None:
        for _ in range(64):
            try:
                frame = os.read(source, 65536)
            except OSError:
                return
            if self.loss and random.random() < self.loss:
                continue
            delay = (self.delay + random.uniform(-self.jitter, self.jitter)) / 1000
            at = max(self._last[target], time.monotonic() + delay)  # jitter never reorders
            self._last[target] = at
            self._count += 1
            heapq.heappush(self._queue, (at, self._count, target, frame))

    def _set(self) -> None:
        lines = os.read(STDIN, 4096).splitlines()
        if lines:
            self.delay, self.jitter, self.loss = map(float, lines[-1].split())
        else:
            self._selector.unregister(STDIN)


def main(one: str, other: str) -> None:
    """Makes both interfaces, says "wire" when they are there, and carries frames for ever."""
    wire = Wire(tap(one), tap(other))
    print("wire", flush=True)
    wire.run()


if __name__ == "__main__":
    main(*sys.argv[1:3])
