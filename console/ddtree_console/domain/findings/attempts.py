"""What earlier starts of a service tried and how they ended: the memory that keeps advice from going in circles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FRACTION = "mem-fraction-static"
ROOM = 0.03
"""a gap between two memory fractions below which there is nothing worth trying between them."""


@dataclass(frozen=True)
class Attempted:
    """One earlier start. flags: dash names -> value. slug: of its finding, '' when it served or nothing is known.

    phase: how far it got. label: for the table of attempts (release or profile name).
    """

    flags: Mapping[str, Any] = field(default_factory=dict)
    slug: str = ""
    phase: str = ""
    label: str = ""


def number(value: Any) -> float | None:
    """A flag's value as a number, None where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if found == found and abs(found) != float("inf") else None


def refused_low(attempts: Sequence[Attempted]) -> float | None:
    """The largest memory fraction with which the pool could not be sized, None for none."""
    found = [number(a.flags.get(FRACTION)) for a in attempts if a.slug == "kv-budget-too-small"]
    return max((x for x in found if x is not None), default=None)


def refused_high(attempts: Sequence[Attempted]) -> float | None:
    """The smallest memory fraction with which memory ran out afterwards, None for none."""
    found = [number(a.flags.get(FRACTION)) for a in attempts if a.slug.startswith("gpu-oom")]
    return min((x for x in found if x is not None), default=None)


def between(slug: str, fraction: float | None, attempts: Sequence[Attempted]) -> str:
    """A sentence where raising and lowering the fraction were both tried and nothing lies between, else ''."""
    low, high = refused_low(attempts), refused_high(attempts)
    if slug.startswith("gpu-oom"):
        high = min((x for x in (high, fraction) if x is not None), default=None)
    elif slug == "kv-budget-too-small":
        low = max((x for x in (low, fraction) if x is not None), default=None)
    else:
        return ""
    if low is None or high is None or not low <= high < low + ROOM:
        return ""
    return f"--{FRACTION} {low:g} leaves no room for the KV cache and {high:g} runs out of memory: neither value fits."
