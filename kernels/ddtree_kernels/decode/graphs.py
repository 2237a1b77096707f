"""Whole rounds as CUDA graphs: one launch a round, and the next is launched before the last one's result is read.

A round's own code is the eager one (round.py), which tests also run on a CPU with tensors for lengths;
tests/decode/test_gpu.py holds captured rounds to eager ones. The last kernel of a round writes its output into the
host's memory (ring.py), so between two rounds of the stream there is an event and nothing else.

Everything goes to one stream, so what the host changes between requests (place, sampling numbers, prompts) comes after
the round that ran ahead. That round's rows lie within engine.reserve, and its seed is dropped by the next request's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from ddtree_kernels.decode.engine import Engine
    from ddtree_kernels.decode.round import Round

WARM_UP = 3
"""Eager rounds before a capture: kernels are compiled and chosen, libraries make their workspaces."""
NAMES = {True: "greedy", False: "sampled"}


class CaptureError(RuntimeError):
    """A round could not be captured; one line with the batch size and the way out."""


def capture_error(what: str, error: BaseException) -> CaptureError:
    """The line for a failed capture, worded as SGLang words it. Its reason is the first error: what fails inside a
    capture makes the end of the capture fail too, and that one says nothing."""
    while error.__context__ is not None:
        error = error.__context__
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return CaptureError(
        f"Capture cuda graph failed: {what}, bs=1: {reason}. Possible solutions: 1. a smaller --mem-fraction-static, "
        "where memory is short 2. a smaller --budget 3. --disable-cuda-graph, which captures nothing and is slower"
    )


class Captured:
    """One captured round, whose output rows are read from the round's ring."""

    def __init__(self, round_: Round) -> None:
        """Captures round_.run as it chooses now; the round is static and its place is set. Raises what torch raises."""
        self.round = round_
        self.graph = torch.cuda.CUDAGraph()
        if not round_.choose.greedy:  # each replay then sets the seed and the offset, which costs two small launches
            self.graph.register_generator_state(round_.choose.generator)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.inference_mode():
            for _ in range(WARM_UP):
                round_.run()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.inference_mode(), torch.cuda.graph(self.graph):
            round_.run()
        self._events = [torch.cuda.Event() for _ in range(2)]

    def replay(self) -> None:
        """Queues one round."""
        self.graph.replay()

    def _launch(self, number: int) -> None:
        with torch.inference_mode():
            self.replay()
        self._events[number % 2].record()

    def rows(self) -> Iterator[list[int]]:
        """Output rows, without end; one round runs ahead of what the caller has seen."""
        ring, number = self.round.ring, 0
        ring.restart()
        self._launch(number)
        while True:
            self._launch(number + 1)
            self._events[number % 2].synchronize()
            yield ring.row(number)
            number += 1


def capture(engine: Engine, kinds: Iterable[bool] = (True, False), made: type[Captured] = Captured) -> None:
    """Captures an engine's rounds, greedy (True) and sampled. CaptureError; on a CPU there is nothing to capture."""
    if engine.device.type != "cuda":
        raise CaptureError("there are no CUDA graphs on a CPU")
    for greedy in kinds:
        # rows behind these are free: the warm-up rounds write there and mean nothing
        engine.begin(1, torch.zeros(1, dtype=torch.int64, device=engine.device), None)
        try:
            with engine.choose.kind(greedy, filtered=not greedy):
                engine.graphs[greedy] = made(engine.round)
        except Exception as error:  # a compiler, a library or the driver: whatever it is, the way out is the same
            raise capture_error(f"{engine.settings.mode} round, {NAMES[greedy]}", error) from error
