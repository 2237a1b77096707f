"""What earlier transactions of a slot tried: read from its history and kept releases, for the engine of findings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

from ddtree_console.domain.findings.attempts import Attempted
from ddtree_console.domain.plan import Candidate
from ddtree_console.hostside import changes, history, kept
from ddtree_console.hostside.roots import Roots

MOST = 8
"""attempts looked at."""


def _deploys(roots: Roots, unit: str, tx: str) -> list[dict[str, Any]]:
    """History lines of deployments but this one, newest first."""
    found = []
    for line in islice(history.newest_first(roots, unit, 50), 50):
        raw = json.loads(line)
        if raw.get("what") == "deploy" and raw.get("tx") != tx and raw.get("outcome") != "refused":
            found.append(raw)
    return found[:MOST]


def _model(candidate: Candidate | None) -> Any:
    return candidate.profile.get("model") if candidate is not None else None


def slug_of(raw: Mapping[str, Any]) -> str:
    """The slug of an attempt's finding, '' where it served or nothing was found."""
    found = raw.get("finding")
    slug = found.get("slug") if isinstance(found, dict) else ""
    return slug if isinstance(slug, str) else ""


def attempts(roots: Roots, unit: str, tx: str, candidate: Candidate) -> list[Attempted]:
    """Earlier starts of the same model in this slot, oldest first."""
    found = []
    for raw in _deploys(roots, unit, tx):
        past = kept.read(roots, unit, str(raw.get("target") or ""))
        if past is not None and _model(past) == _model(candidate):
            phase, label = str(raw.get("furthest") or ""), f"{raw.get('target')} {past.profile_name}".strip()
            found.append(Attempted(past.set_flags, slug_of(raw), phase, label))
    return found[::-1]


def before(roots: Roots, unit: str, tx: str) -> Candidate | None:
    """What the newest earlier deployment started, None where none is kept."""
    for raw in _deploys(roots, unit, tx):
        return kept.read(roots, unit, str(raw.get("target") or ""))
    return None


def edited_flags(past: Candidate | None, now: Candidate) -> tuple[str, ...]:
    """Flags that differ between two launches, in the order of the new one."""
    if past is None:
        return ()
    names = dict.fromkeys([*now.set_flags, *past.set_flags])
    return tuple(name for name in names if past.set_flags.get(name) != now.set_flags.get(name))


def edited_lines(past: Candidate | None, now: Candidate) -> list[str]:
    """What was edited since the attempt before, in words; [] where there was none."""
    return changes.lines(past.profile, now.profile) if past is not None else []
