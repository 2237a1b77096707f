"""What each real start said of memory, kept beside the releases: the next estimate is corrected by it."""

from __future__ import annotations

import re
import select
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddtree_console.domain import launch
from ddtree_console.domain.memory import gpus
from ddtree_console.domain.memory.learnt import FLAGS, MEASURED
from ddtree_console.domain.plan import Candidate
from ddtree_console.domain.snapshot import GpuReport
from ddtree_console.hostside import durable
from ddtree_console.hostside.gpus import GpuReader
from ddtree_console.hostside.roots import Roots
from ddtree_console.hostside.tx_base import Served, Tx

KEPT = 20
GPU_S = 0.5
"""A GPU that answers later is left out: the locks are still held."""
_DIST = re.compile(r"sglang-([0-9][^-]*)\.(?:dist|egg)-info\Z")


def file(roots: Roots, unit: str) -> Path:
    """memory.json of a unit."""
    return roots.kept(unit) / "memory.json"


def read(roots: Roots, unit: str) -> list[dict[str, Any]]:
    """Starts kept, oldest first."""
    found = durable.read_json(file(roots, unit)).get("starts")
    return [start for start in found if isinstance(start, dict)] if isinstance(found, list) else []


def release_of(python: str) -> str:
    """SGLang's release in that interpreter's site-packages, by the name of its metadata; '' for none."""
    if not python.startswith("/"):
        return ""
    for folder in sorted(Path(python).parent.parent.glob("lib*/python3*/site-packages")):
        for path in folder.glob("sglang-*-info"):
            match = _DIST.match(path.name)
            if match is not None:
                return match.group(1)
    return ""


def _report(reader: GpuReader | None) -> GpuReport:
    """A reading of the GPUs, or nothing where it does not come at once."""
    if reader is None or reader.ask() is not None:
        return GpuReport()
    until = time.monotonic() + GPU_S
    while select.select([reader.fileno()], [], [], max(0.0, until - time.monotonic()))[0]:
        report = reader.take()
        if report is not None:
            return report
    return GpuReport()


def entry(candidate: Candidate, values: Mapping[str, Any], free: Sequence[int], total: Sequence[int]) -> dict[str, Any]:
    """One start: its build, the flags that memory depends on, and what its log said."""
    line = launch.read(candidate.unit_text).line
    flags = {k: v for k, v in line.flags.items() if k in FLAGS and isinstance(v, (str, int, float, bool))}
    return {
        "release": release_of(line.python or ""),
        "python": line.python or "",
        "model": line.model or "",
        "flags": flags,
        "measured": {k: v for k, v in values.items() if k in MEASURED},
        "free": list(free),
        "total": list(total),
    }


def note(tx: Tx, candidate: Candidate, served: Served) -> None:
    """Keeps what the start that just held said of memory. Never raises: nothing depends on it."""
    values = {k: v for k, v in served.values if k in MEASURED}
    if not values:
        return
    try:
        free, total = gpus.without(_report(tx.gpus()), tx.plan.gpus, tx.unit)
        made = {**entry(candidate, values, free, total), "tx": tx.id, "wall": round(tx.clock.wall(), 3)}
        durable.write_json(file(tx.roots, tx.unit), {"starts": [*read(tx.roots, tx.unit), made][-KEPT:]})
    except (OSError, ValueError) as error:
        print(f"what the log said of memory was not kept: {error}", flush=True)
