"""Recordings of a real SGLang 0.5.12 (one H200), read lazily. Standard library only, Python 3.9. Names that begin with
`tiny-` are runs of the repository's own pair, tree and shadow with the DDTREE plug-in; the others had dummy weights.

NAME.log.xz holds `seconds line` for every line that the process wrote, bytes untouched; NAME.json.xz its arguments,
exit code and answers. This folder travels with replayer.py: nothing here may import the package around it.
"""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
# a run that differs only in how its bars were drawn has no answers of its own
ANSWERS_OF = {"dflash-healthy-bars": "dflash-healthy"}


@dataclass(frozen=True)
class Recording:
    """One run. ready, and the times in lines and poll: seconds since its start. rc: exit code of a run that ended by
    itself, else None. responses: endpoint -> [status, body, seconds], `frozen ENDPOINT` while the scheduler hung."""

    name: str
    args: tuple[str, ...] = ()
    ready: float | None = None
    rc: int | None = None
    poll: tuple[tuple[Any, ...], ...] = ()
    responses: dict[str, Any] = field(default_factory=dict)
    lines: tuple[tuple[float, bytes], ...] = ()

    def text(self) -> list[str]:
        """Every line as text without its newline: what a journal would hand on."""
        return [line.decode("utf-8", "replace").rstrip("\n") for _, line in self.lines]


def names() -> list[str]:
    """Every recording's name."""
    return sorted(path.name[: -len(".log.xz")] for path in FOLDER.glob("*.log.xz"))


def _facts(name: str) -> dict[str, Any]:
    with lzma.open(FOLDER / f"{name}.json.xz") as file:
        facts: dict[str, Any] = json.load(file)
    return facts


def _lines(name: str) -> tuple[tuple[float, bytes], ...]:
    with lzma.open(FOLDER / f"{name}.log.xz") as file:
        # the time is right-aligned in 8 columns, one space follows
        # only a newline ends a line here: a bar's carriage returns are part of it
        return tuple((float(line[:8]), line[9:] + b"\n") for line in file.read().split(b"\n") if line)


def load(name: str) -> Recording:
    """The recording of that name; KeyError names those that exist."""
    if name not in names():
        raise KeyError(f"no recording {name!r}; there are: {', '.join(names())}")
    facts = _facts(name)
    answers = facts.get("responses") or (_facts(ANSWERS_OF[name])["responses"] if name in ANSWERS_OF else {})
    return Recording(
        name=name,
        args=tuple(facts["args"]),
        ready=facts["ready"],
        rc=facts["rc"],
        poll=tuple(tuple(change) for change in facts["poll"]),
        responses=answers,
        lines=_lines(name),
    )
