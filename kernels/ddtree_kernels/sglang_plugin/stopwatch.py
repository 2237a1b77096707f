"""GPU time of the parts of some rounds: events between launches, read once the host has waited anyway. Needs torch."""

from __future__ import annotations

import torch

EVERY = 16
"""rounds between two that are measured: an event costs the host some microseconds."""


class Stopwatch:
    """Measures nothing where the device is no GPU."""

    def __init__(self, device: torch.device | str) -> None:
        self._on = torch.device(device).type == "cuda"
        self._round = 0
        self._marks: list[tuple[str, torch.cuda.Event]] = []

    def begin(self) -> None:
        """A round begins."""
        self._marks.clear()
        self._round += 1
        if self._on and self._round % EVERY == 0:
            self._put("")

    def mark(self, name: str) -> None:
        """What was launched since the last mark is `name`."""
        if self._marks:
            self._put(name)

    def _put(self, name: str) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append((name, event))

    def read(self) -> dict[str, float]:
        """Milliseconds of each part, once the GPU is through with all of them; {} of a round that was not measured."""
        pairs = zip(self._marks, self._marks[1:], strict=False)
        found = {name: before.elapsed_time(event) for (_, before), (name, event) in pairs}
        self._marks.clear()
        return found
