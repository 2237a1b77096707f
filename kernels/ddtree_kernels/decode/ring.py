"""Output rows that a captured round writes straight into the host's memory, so that nothing stands between two rounds.

The buffer is pinned: the GPU reaches it under the address that the host uses. A counter on the device says which of its
rows is next, so one graph, whose addresses never change, fills them in turn. What an event behind a round's launch has
seen written, the host may read.
"""

from __future__ import annotations

import torch

SLOTS = 4
"""Rows. Two would do: one is read while the round that ran ahead writes the other."""


class Ring:
    """`rows` int64 [SLOTS, size] for the host to read, `turn` int64 [1] on the device: rounds since the restart."""

    def __init__(self, size: int, device: torch.device) -> None:
        """size: numbers of an output row."""
        self.rows = torch.zeros(SLOTS, size, dtype=torch.int64, pin_memory=device.type == "cuda")
        self.turn = torch.zeros(1, dtype=torch.int64, device=device)

    def restart(self) -> None:
        """The next round that is queued writes row 0; rounds queued before it keep their rows."""
        self.turn.zero_()

    def row(self, number: int) -> list[int]:
        """The row of that round since the restart, which must be done, and at most SLOTS - 1 rounds old."""
        found: list[int] = self.rows[number % SLOTS].tolist()
        return found

    def last(self) -> list[int]:
        """The row of the round queued last; waits for it."""
        return self.row(int(self.turn) - 1)
