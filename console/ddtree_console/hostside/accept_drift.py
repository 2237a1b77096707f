"""`accept-drift`: an operator takes the differences between asked and effective flags of a slot as known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ddtree_console.domain import drift
from ddtree_console.domain.snapshot import Drift
from ddtree_console.hostside import locks, releases, request_json
from ddtree_console.hostside.hostclock import Clock
from ddtree_console.hostside.reply import refuse, say
from ddtree_console.hostside.roots import Roots


def _drift(raw: Any) -> Drift:
    """One difference. ValueError for anything else."""
    if not isinstance(raw, Mapping) or not all(isinstance(raw.get(k), str) for k in ("flag", "asked", "effective")):
        raise ValueError(f"no difference: {raw!r}")
    return Drift(raw["flag"], raw["asked"], raw["effective"])


def accept(roots: Roots, raw: Mapping[str, Any], clock: Clock) -> str:
    """The signature that is kept now; '' once there is no difference. ValueError, locks.Busy, OSError."""
    unit = request_json.unit_of(dict(raw))
    rows = raw.get("drift")
    if not isinstance(rows, list):
        raise ValueError("drift is no list")
    made = drift.signature([_drift(row) for row in rows])
    # a transaction writes the same file: nothing may come between its reading and writing
    info = {"who": str(raw.get("who") or ""), "from": "", "why": "accept drift", "since": clock.wall(), "tx": ""}
    held = locks.acquire(roots, unit, (), info, clock)
    try:
        releases.save(roots, unit, replace(releases.load(roots, unit), accepted_drift=made))
    finally:
        held.release()
    return made


def main(roots: Roots, args: list[str]) -> int:
    """`accept-drift`: {"unit", "drift": [{"flag", "asked", "effective"}], "who"} on stdin."""
    try:
        return say({"ok": True, "accepted": accept(roots, request_json.read(), Clock())})
    except ValueError as error:
        return refuse(2, f"accept-drift: {error}", "use a console of this version")
    except locks.Busy as busy:
        return refuse(6, str(busy), "wait until it ends", holder=busy.holder)
    except OSError as error:
        return refuse(7, f"{error.filename or roots.var}: {error.strerror}", "make room on the disk")
