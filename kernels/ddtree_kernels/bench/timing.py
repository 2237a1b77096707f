"""Times on one GPU: replays of a CUDA graph that holds several calls, median over replays."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch

COPY_BYTES = 4 << 30
Call = Callable[[], object]


def graph_us(calls: Sequence[Call], replays: int = 20) -> float:
    """Microseconds of one call: all calls captured in one graph, replayed, median of the replays."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    return events_us([graph.replay], replays) / len(calls)


def events_us(calls: Sequence[Call], repeats: int = 20) -> float:
    """Microseconds of one pass over the calls between two events, median; for what cannot be captured."""
    return spread_us(calls, repeats)[1]


def spread_us(calls: Sequence[Call], repeats: int = 20) -> tuple[float, float, float]:
    """As events_us: the least, the median and the most."""
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        for call in calls:
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return min(times), statistics.median(times), max(times)


def copy_bytes_per_us() -> float:
    """Bytes read and written each microsecond by a large elementwise kernel on this very card."""
    source = torch.randn(COPY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / events_us([lambda: torch.neg(source, out=target)], 10)
