"""Whole rounds as CUDA graphs: one launch a round, and the next is launched before the last one's result is read.

NOT YET RUN ON A GPU: written against torch's documentation; on a machine without one only the message of a failure is
tested. A round's own code is the eager one (round.py), which tests also run with tensors for lengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from ddtree_kernels.decode.engine import Engine
    from ddtree_kernels.decode.round import Round

WARM_UP = 3
"""Eager rounds before a capture: kernels are compiled and chosen, libraries make their workspaces."""


class CaptureError(RuntimeError):
    """A round could not be captured; one line with the batch size and the way out."""


def capture_error(what: str, error: BaseException) -> CaptureError:
    """The line for a failed capture, worded as SGLang words it."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return CaptureError(
        f"Capture cuda graph failed: {what}, bs=1: {reason}. Possible solutions: 1. a smaller --mem-fraction-static, "
        "where memory is short 2. a smaller --budget 3. --disable-cuda-graph, which captures nothing and is slower"
    )


class Captured:
    """One captured round, and its output rows in two pinned buffers that take turns."""

    def __init__(self, round_: Round) -> None:
        """Captures round_.run; the round is static and its place is set. Raises what torch raises."""
        self.round = round_
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(round_.choose.generator)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.inference_mode():
            for _ in range(WARM_UP):
                round_.run()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.inference_mode(), torch.cuda.graph(self.graph):
            round_.run()
        size = round_.output.numel()
        self._hosts = [torch.empty(size, dtype=torch.int64, pin_memory=True) for _ in range(2)]
        self._events = [torch.cuda.Event() for _ in range(2)]

    def _launch(self, turn: int) -> None:
        with torch.inference_mode():
            self.graph.replay()
            self._hosts[turn].copy_(self.round.output, non_blocking=True)
        self._events[turn].record()

    def rows(self) -> Iterator[list[int]]:
        """Output rows, without end; one round runs ahead of what the caller has seen."""
        turn = 0
        self._launch(turn)
        while True:
            self._launch(1 - turn)
            self._events[turn].synchronize()
            yield self._hosts[turn].tolist()
            turn = 1 - turn


def capture(engine: Engine) -> None:
    """Captures the greedy and the sampled round of an engine. CaptureError; on a CPU there is nothing to capture."""
    if engine.device.type != "cuda":
        raise CaptureError("there are no CUDA graphs on a CPU")
    for greedy, name in ((True, "greedy"), (False, "sampled")):
        # rows behind these are free: the warm-up rounds write there and mean nothing
        engine.begin(1, torch.zeros(1, dtype=torch.int64, device=engine.device), None)
        try:
            with engine.choose.kind(greedy, filtered=not greedy):
                engine.graphs[greedy] = Captured(engine.round)
        except (RuntimeError, ValueError, AssertionError) as error:
            raise capture_error(f"{engine.settings.mode} round, {name}", error) from error
