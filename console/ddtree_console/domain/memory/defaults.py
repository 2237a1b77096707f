"""What SGLang chooses by itself from the size of the GPU: prefill chunk, graph sizes, memory fraction. Pure.

Read in `_handle_gpu_memory_settings` of 0.4.6, 0.5.5, 0.5.9 to 0.5.20 and 0.5.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddtree_console.domain.memory import launch
from ddtree_console.domain.memory.release import Rules

MiB = 1024**2
# memory below (MiB) -> prefill chunk, largest decode batch with a graph at tp < 4, and from tp 4
_CLASSES = (
    (20 * 1024, 2048, 8, 8),
    (35 * 1024, 2048, 24, 80),
    (60 * 1024, 4096, 32, 160),
    (160 * 1024, 8192, 256, 512),
    (float("inf"), 16384, 512, 512),
)
SPECULATIVE_REQUESTS = 48
"""--max-running-requests where speculation is on and nothing was said."""
PREFILL_TOKENS = 16384


def _class(total: int, rule: Rules, tp: int) -> tuple[int, int]:
    mib = total / MiB
    _, chunk, few, many = next(row for row in _CLASSES if mib < row[0])
    if rule.number >= (0, 5, 20) and 20 * 1024 <= mib < 35 * 1024:
        chunk, few, many = 4096, 48, 160
    return chunk, few if tp < 4 else many


def chunk(flags: Mapping[str, Any], total: int, rule: Rules, tp: int) -> int:
    """Tokens of one prefill step."""
    asked = launch.whole(flags, "chunked-prefill-size", -1)
    if asked is not None and asked <= 0:
        return launch.whole(flags, "max-prefill-tokens") or PREFILL_TOKENS
    return asked or _class(total, rule, tp)[0]


def largest_batch(flags: Mapping[str, Any], total: int, rule: Rules, tp: int, running: int | None) -> int:
    """The largest decode batch with a graph."""
    asked = launch.whole(flags, "cuda-graph-max-bs-decode")
    if asked is not None:
        return asked
    found = _class(total, rule, tp)[1]
    return min(found, running) if running and rule.number >= (0, 5, 23) else found


def decode_sizes(largest: int, running: int, speculative: bool, padding: bool) -> list[int]:
    """Batch sizes that are captured: none above the requests that can run."""
    top = min(largest, running)
    if not padding:
        return list(range(1, top + 1))
    if speculative:
        sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, largest + 1, 16)]
    else:
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, largest + 1, 32)]
    return sorted({size for size in sizes if size <= top} | {top}) if top > 0 else []


def prefill_sizes(largest: int) -> list[int]:
    """Token counts that are captured."""
    sizes = [
        *range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64), *range(1280, 4097, 256),
        *range(4608, largest + 1, 512),
    ]  # fmt: skip
    return [size for size in sizes if size <= largest]


def reserved(
    flags: Mapping[str, Any], total: int, rule: Rules, tp: int, batch: int, prefills: int, latent: bool, decode: bool
) -> int:
    """Bytes that SGLang leaves for activations and graphs when it chooses the fraction; from 0.5.5."""
    tokens = max(chunk(flags, total, rule, tp), 2048)
    mib = 512 + 1.5 * tokens + 128 * tp + (2 * batch if decode or rule.number < (0, 5, 14) else 0)
    if prefills:
        mib += 1536 if latent and rule.number >= (0, 5, 10) else 8 * prefills
    if total / MiB > 60 * 1024:
        mib = max(mib, 10 * 1024)
    algorithm = launch.text(flags, "speculative-algorithm")
    if algorithm and algorithm != "ngram" and rule.speculation:
        mib += 6 * 1024 if algorithm == "standalone" else rule.speculation
    return int(mib * MiB)


def fraction(total: int, rule: Rules, tp: int, kept: int, vision: int) -> float:
    """mem-fraction-static where nothing was said. kept: `reserved`. vision: as Shape.vision."""
    if rule.number < (0, 5, 5):
        if total / MiB > 81920:
            return (total - 13 * 1024 * MiB) / total
        return next(f for least, f in ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87), (0, 0.88)) if tp >= least)
    found = round((total - kept) / total, 3)
    if vision:
        found *= 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (vision / (24 * 1024**2) - 1.0)))
    return found
