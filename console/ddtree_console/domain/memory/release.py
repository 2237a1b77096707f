"""What SGLang's releases do differently with memory, as read in their sources. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddtree_console.domain.memory import launch

_NUMBER = re.compile(r"(\d+)\.(\d+)\.(\d+)")
NEWEST = (0, 5, 23)


def parse(release: str) -> tuple[int, int, int] | None:
    """0.5.12 of any text that holds it, None without."""
    found = _NUMBER.search(release)
    return (int(found.group(1)), int(found.group(2)), int(found.group(3))) if found else None


@dataclass(frozen=True)
class Rules:
    """One release's ways.

    draft_inside: draft weights count against mem-fraction-static (0.5.14, #28855).
    exact_draft: the draft's K and V are priced by its own shape (0.5.18), else by layers of the target.
    state: how state slots are sized: each (to 0.5.6), first (0.5.7 to 0.5.12: all requests asked for come first),
    joint (0.5.13), padded (0.5.17: one slot more).
    breakable: the prefill graph is a breakable one (0.5.15), before it a piecewise one.
    auto_buffer: the radix cache of hybrid models keeps extra slots by default (0.5.14).
    speculation: MiB that the automatic fraction, where it is computed (0.5.5), leaves for a draft model.
    """

    number: tuple[int, int, int]
    draft_inside: bool
    exact_draft: bool
    state: str
    breakable: bool
    auto_buffer: bool
    speculation: int


def rules(number: tuple[int, int, int]) -> Rules:
    """The rules of that release; newer ones are taken to do as the newest that was read."""
    if number <= (0, 5, 6):
        state = "each"
    elif number <= (0, 5, 12):
        state = "first"
    else:
        state = "joint" if number <= (0, 5, 16) else "padded"
    speculation = 0 if number > (0, 5, 13) else 4096 if number >= (0, 5, 10) else 2048
    return Rules(
        number=number,
        draft_inside=number >= (0, 5, 14),
        exact_draft=number >= (0, 5, 18),
        state=state,
        breakable=number >= (0, 5, 15),
        auto_buffer=number >= (0, 5, 14),
        speculation=speculation,
    )


def decode_graph(rule: Rules, flags: Mapping[str, Any]) -> bool:
    """Whether the decode graph is captured."""
    if launch.on(flags, "disable-cuda-graph") or launch.on(flags, "disable-decode-cuda-graph"):
        return False
    return launch.text(flags, "cuda-graph-backend-decode") != "disabled"


def prefill_graph(rule: Rules, flags: Mapping[str, Any], vision: bool) -> bool:
    """Whether the prefill (piecewise) graph is captured; `--disable-cuda-graph` stops it in some releases only."""
    stopped = launch.on(flags, "disable-piecewise-cuda-graph")
    if rule.number < (0, 5, 10):
        with_decode = launch.on(flags, "disable-cuda-graph") and rule.number < (0, 5, 7)
        return launch.on(flags, "enable-piecewise-cuda-graph") and not stopped and not with_decode
    if rule.number < (0, 5, 14):
        return not stopped and not vision
    stopped = stopped or launch.on(flags, "disable-cuda-graph") or launch.on(flags, "disable-prefill-cuda-graph")
    return not stopped and launch.text(flags, "cuda-graph-backend-prefill") != "disabled"
