"""How many tokens of keys and values fit, with SGLang's meaning of --mem-fraction-static.

With M0 the bytes free before anything is loaded and f the fraction, weights and pool together take f * M0; the rest is
left for activations and graphs. The context length does not size the pool: it is the most that one request may use.
Without a fraction the pool holds one request of full context, where that fits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch

GIB = 1 << 30
LEAST = 64
"""Tokens that a pool must hold for a request, beside what a round needs for itself."""
AUTO = {"cpu": 0.7, "cuda": 0.88}
"""The most that is taken of free memory where no fraction is given."""


class MemoryShort(RuntimeError):
    """Weights and the least pool do not fit; one line with the shortfall and the least fraction that would do."""


@dataclass(frozen=True)
class Need:
    """Bytes that a pair takes. weights, draft_weights; token, draft_token: keys and values of one token in all layers.
    reserve: rows that rounds need for themselves (engine.reserve)."""

    weights: int
    draft_weights: int
    token: int
    draft_token: int
    reserve: int


@dataclass(frozen=True)
class Size:
    """tokens: rows of each cache. fraction: of `free` that weights and pool take together, given or found."""

    free: int
    tokens: int
    fraction: float


def size(free: int, need: Need, *, context: int, fraction: float | None, most: int | None, device: str) -> Size:
    """The pool for `free` bytes; most: a cap in tokens. MemoryShort where not even LEAST tokens fit."""
    token = need.token + need.draft_token
    weights = need.weights + need.draft_weights
    least = need.reserve + LEAST
    wanted = need.reserve + context
    share = AUTO[device] if fraction is None else fraction
    fits = math.floor((free * share - weights) / token)
    if fits < least:
        raise MemoryShort(_short(free, need, least, share, given=fraction is not None, device=device))
    tokens = min(fits, wanted) if fraction is None else fits
    if most is not None:
        tokens = max(least, min(tokens, most))
    taken = (weights + tokens * token) / free
    return Size(free, tokens, taken if fraction is None else fraction)


def _short(free: int, need: Need, least: int, share: float, *, given: bool, device: str) -> str:
    token, weights = need.token + need.draft_token, need.weights + need.draft_weights
    short = weights + least * token - free * share
    at_least = math.ceil((weights + least * token) / free * 1000) / 1000
    where = "host memory" if device == "cpu" else "GPU memory"
    named = "--mem-fraction-static" if given else "the automatic fraction"
    text = (
        f"Not enough memory. Please try to increase --mem-fraction-static. {named} {share:g} of {free / GIB:.2f} GB "
        f"free {where} is {gigabytes(short)} short of the weights ({gigabytes(need.weights)} target, "
        f"{gigabytes(need.draft_weights)} draft) and a pool of {least} tokens ({gigabytes(least * token)}); "
    )
    if at_least < 1:
        return text + f"the least fraction that would do is {at_least:.3f}"
    return text + "no fraction would do: free memory, or use a smaller model"


def gigabytes(count: float) -> str:
    """Bytes for a reader, with three digits."""
    return f"{count / GIB:.3g} GB"


def free_memory(device: torch.device, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that can be had now: of the GPU, or of the host within this process's memory limit."""
    if device.type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        return free
    text = (proc / "meminfo").read_text("ascii")
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    free = int(fields["MemAvailable"].split()[0]) * 1024
    return min(free, _limit(proc, cgroup, free))


def _limit(proc: Path, cgroup: Path, free: int) -> int:
    """What the control groups above this process still allow; `free` where none has a limit."""
    try:
        own = next(line for line in (proc / "self/cgroup").read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return free
    at = cgroup / own[3:].lstrip("/")
    for folder in (at, *at.parents):
        if not folder.is_relative_to(cgroup):
            break
        try:
            limit = (folder / "memory.max").read_text().strip()
            if limit != "max":
                free = min(free, max(0, int(limit) - int((folder / "memory.current").read_text())))
        except (OSError, ValueError):
            continue
    return free
