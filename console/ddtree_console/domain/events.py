"""Events of a transaction: one JSON line each, written on the host, followed by any console.

Envelope: {"v": 1, "tx": id, "n": counter from 0, "boot": boot_id, "t": CLOCK_BOOTTIME seconds, "wall": unix seconds,
"kind": ..., **data}. Unknown kinds and keys are kept and shown raw. docs/PROTOCOL.md lists each kind's keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

VERSION = 1

BEGIN, STEP, RUNG, PHASE, PROGRESS = "begin", "step", "rung", "phase", "progress"
VERDICT, BACK, DRIFT, REQUEST, NOTE, OUTCOME = "verdict", "back", "drift", "request", "note", "outcome"
KINDS = (BEGIN, STEP, RUNG, PHASE, PROGRESS, VERDICT, BACK, DRIFT, REQUEST, NOTE, OUTCOME)

STEPS = ("lock", "verify", "keep", "stop", "free", "start", "wait", "hold", "commit")
RUNGS = ("invocation", "process", "listener", "info", "token", "held")

# outcome.state -> exit code of `deploy` and `rollback`
OUTCOMES = {
    "committed": 0,  # the release asked for serves and is committed (also the target of a rollback)
    "serving_uncommitted": 8,
    "went_back": 3,  # failed; the known good serves
    "went_way_back": 3,  # failed; the way back serves
    "stopped": 4,  # failed; on_failure=stop, or a first deploy without a way back: unit stopped
    "nothing_serves": 4,
    "left": 3,  # failed; on_failure=leave: left as it is
    "refused": 7,  # nothing was touched
    "cut": 4,  # a reboot or power loss ended it; written by the next watcher or recovery
}


@dataclass(frozen=True)
class Event:
    """One event. t is CLOCK_BOOTTIME of that boot in seconds; wall is for show only."""

    tx: str
    n: int
    boot: str
    t: float
    wall: float
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)
    v: int = VERSION

    def line(self) -> str:
        """The event as one JSON line without newline."""
        head: dict[str, Any] = {
            "v": self.v,
            "tx": self.tx,
            "n": self.n,
            "boot": self.boot,
            "t": round(self.t, 3),
            "wall": round(self.wall, 3),
            "kind": self.kind,
        }
        head.update({k: v for k, v in self.data.items() if k not in head})
        return json.dumps(head, separators=(",", ":"), ensure_ascii=True)


def parse(line: str) -> Event | None:
    """The event in a line, or None for a torn or foreign line (a power cut leaves half lines)."""
    try:
        raw = json.loads(line)
    except ValueError:
        return None
    if not isinstance(raw, dict):
        return None
    try:
        return Event(
            tx=str(raw.pop("tx")),
            n=int(raw.pop("n")),
            boot=str(raw.pop("boot", "")),
            t=float(raw.pop("t")),
            wall=float(raw.pop("wall", 0.0)),
            kind=str(raw.pop("kind")),
            v=int(raw.pop("v", 0)),
            data=raw,
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
