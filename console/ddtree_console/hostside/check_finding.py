"""One result of a check, and how a part that cannot tell says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """state: ok | warn | fail | unknown. service: '' for the host."""

    name: str
    state: str
    evidence: str
    remedy: str = ""
    service: str = ""


def safely(name: str, work: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """The findings of `work`; where it breaks, one of that name that says why. Nothing else is lost by it."""
    try:
        yield from work()
    except Exception as error:  # an odd host must not hide what the other checks say
        why = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        yield Finding(name, "unknown", f"not known, because {why}")
