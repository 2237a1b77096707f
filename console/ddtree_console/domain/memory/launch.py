"""Launch flags as numbers: aliases, texts, k and M. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ddtree_console.domain.memory.shape import Unknown

ALIASES = {
    "tp-size": ("tensor-parallel-size", "tp"),
    "pp-size": ("pipeline-parallel-size", "pp"),
    "dp-size": ("data-parallel-size", "dp"),
    "mem-fraction-static": ("mem-fraction",),
    "speculative-algorithm": ("speculative-algo",),
    "cuda-graph-max-bs-decode": ("cuda-graph-max-bs",),
    "speculative-num-draft-tokens": ("speculative-dflash-block-size",),
    "mamba-radix-cache-strategy": ("mamba-scheduler-strategy",),
}
_SUFFIX = {"k": 1024, "m": 1024**2}


def value(flags: Mapping[str, Any], name: str) -> Any:
    """The flag's value by its name or an alias; None for absent, false and empty."""
    for key in (name, *ALIASES.get(name, ())):
        found = flags.get(key)
        if found is not None and found is not False and found != "":
            return found[0] if isinstance(found, (list, tuple)) and len(found) == 1 else found
    return None


def on(flags: Mapping[str, Any], name: str) -> bool:
    """Whether a bare flag is set."""
    found = value(flags, name)
    return found is not None and str(found).lower() not in ("false", "no", "0")


def text(flags: Mapping[str, Any], name: str) -> str:
    """The flag's text in lower case, '' for absent."""
    found = value(flags, name)
    return "" if found is None else str(found).strip().lower()


def number(flags: Mapping[str, Any], name: str) -> float | None:
    """The flag's number, None for absent. Unknown for a text that is none."""
    found = value(flags, name)
    if found is None:
        return None
    try:
        read = float(found)
    except (TypeError, ValueError, OverflowError):
        read = math.nan
    if isinstance(found, bool) or not math.isfinite(read):
        raise Unknown(f"--{name} is {str(found)[:40]!r}, not a number")
    return read


def whole(flags: Mapping[str, Any], name: str, least: int = 1) -> int | None:
    """The flag's whole number, None for absent; `context-length` takes k and M. Unknown for anything else."""
    found = value(flags, name)
    if isinstance(found, str) and found.strip()[-1:].lower() in _SUFFIX:
        digits, factor = found.strip()[:-1], _SUFFIX[found.strip()[-1].lower()]
        flags = {name: digits}
        read = number(flags, name)
        read = None if read is None else read * factor
    else:
        read = number(flags, name)
    if read is None:
        return None
    if read != int(read) or not least <= read <= 1e12:
        raise Unknown(f"--{name} is {str(found)[:40]!r}; wanted a whole number from {least}")
    return int(read)
