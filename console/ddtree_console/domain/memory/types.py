"""What an estimate is made from, and what it says. Sizes in bytes, of one GPU unless said otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ModelFacts:
    """A checkpoint as read on the host. config: its config.json. weights: bytes of all tensors (index, else headers).

    problems: what could not be read, one line each; the estimate then says `not known, because ...`.
    """

    path: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    weights: int | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Inputs:
    """flags: effective launch flags by dash name (with the intent spelled out). free, total: bytes of each GPU of the
    slot *without* this service's own process. release: of the engine. residual: bytes by term that a real start of this
    host and build used more than was estimated ({} before any)."""

    target: ModelFacts
    draft: ModelFacts | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    free: tuple[int, ...] = ()
    total: tuple[int, ...] = ()
    release: str = ""
    residual: Mapping[str, int] = field(default_factory=dict)
    learnt: str = ""
    """the start that the residual comes from, in words; '' without one."""


@dataclass(frozen=True)
class Term:
    """One part of the bar. name: weights | draft | kv pool | draft kv pool | hybrid state | graphs | reserve | free."""

    name: str
    bytes: int
    why: str = ""


@dataclass(frozen=True)
class Estimate:
    """verdict: fits | tight | does not fit | not known. binding: name of the term that decides, '' where it fits.

    least, greatest: mem-fraction-static that works, None where none does. levers: what else would make it fit, one line
    each, best first. tokens: of the pool; bytes_per_token: target and draft. requests: that can really run at once.
    """

    verdict: str = "not known"
    binding: str = ""
    terms: tuple[Term, ...] = ()
    capacity: int = 0
    tokens: int | None = None
    bytes_per_token: int | None = None
    requests: int | None = None
    least: float | None = None
    greatest: float | None = None
    levers: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    learnt: str = ""
    """the real start that corrected it, in words; '' without one."""
