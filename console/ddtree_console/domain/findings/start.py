"""What is kept of one start of a service while its log is read: bounded, whatever the log's size."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddtree_console.domain.findings.blocks import Block
from ddtree_console.domain.findings.phases import Phases
from ddtree_console.domain.findings.rules import Rule

KEPT, KEPT_OF_RULE, TEXT = 96, 4, 500
_AVAILABLE = re.compile(r"avail mem=(\d{1,6}(?:\.\d{1,4})?) GB")
_TAKEN = re.compile(r"mem usage=(\d{1,6}(?:\.\d{1,4})?) GB")
_ARGUMENT = re.compile(r"[( ]([a-z][a-z0-9_]{1,60})=('[^']{0,300}'|\"[^\"]{0,300}\"|[^,()\s]{1,100})")


@dataclass(eq=False)
class Seen:
    """One line that a rule knows, or an exception that none knows (rule None)."""

    line: int
    text: str
    rule: Rule | None
    groups: Mapping[str, str] = field(default_factory=dict)
    place: str = "line"
    block: Block | None = None
    rank: str = ""
    phase: str = ""
    served: bool = False
    inner: bool = False
    """found in what a wrapper's line quotes."""
    quotes: bool = False
    """a wrapper whose quotation is known: that decides, not the wrapper."""
    t: float | None = None


@dataclass(eq=False)
class Start:
    """One start: what it was given, how far it came, what was seen, and whether it is over."""

    first: int = 1
    phases: Phases = field(default_factory=Phases)
    flags: dict[str, Any] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    tail: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=6))
    """the newest lines that look bad, for when nothing is known."""
    moved: int = 0
    """line of the newest sign of progress."""
    ordinary: int = 0
    """line of the newest ordinary thing that the program said."""
    over: str = ""
    """why it is over, '' while it runs: sigquit | exit | gone."""
    over_line: int = 0
    exit: dict[str, str] = field(default_factory=dict)
    """code, status, result of the main process."""
    stopped: int = 0
    """line at which somebody asked it to stop, 0 for never: what dies after it is no failure."""
    answered: int = 0
    """line of the newest answer to a probe (/health, /v1/models): the main process lives."""
    answered_t: float | None = None
    lines: int = 0
    began: float | None = None
    last: float | None = None
    phase_began: float | None = None
    silent: float = 0.0
    """seconds of silence that were told, counted from the newest line."""
    last_text: str = ""
    last_line: int = 0
    child_dead: Seen | None = None
    bars: int = 0
    noted: bool = False
    """the silence was written into the log by a person, who had a reason."""
    began_by: set[str] = field(default_factory=set)
    ended_by: set[str] = field(default_factory=set)
    """ranks that began and that ended to read weights."""
    free: dict[str, float] = field(default_factory=dict)
    """rank -> GB free before the first weights."""
    used: dict[str, float] = field(default_factory=dict)
    """rank -> share of that which all weights so far have taken."""

    def ranks(self, rank: str, message: str) -> None:
        """Keeps who reads weights, and what they leave."""
        found = _AVAILABLE.search(message)
        if found is not None and len(self.free) < 4096:
            free = float(found.group(1))
            if message.startswith("Load weight begin"):
                self.free.setdefault(rank, free)
            elif message.startswith("Load weight end"):
                taken = _TAKEN.search(message)
                before = self.free.setdefault(rank, free + (float(taken.group(1)) if taken is not None else 0.0))
                if 0 < free < before:
                    self.used[rank] = 1 - free / before
        if rank and len(self.began_by) < 4096:
            if message.startswith("Load weight begin"):
                self.began_by.add(rank)
            elif message.startswith("Load weight end"):
                self.ended_by.add(rank)

    def keep(self, seen: Seen) -> None:
        """Keeps it, unless there is enough of its kind."""
        key = seen.rule.id if seen.rule is not None else "?" + seen.text[:40]
        count = self.counts.get(key, 0)
        if count >= KEPT_OF_RULE or len(self.seen) >= KEPT:
            return
        self.counts[key] = count + 1
        seen.text = seen.text[:TEXT]
        self.seen.append(seen)

    def read_arguments(self, message: str) -> None:
        """Flags in SGLang's own line of its resolved arguments."""
        for name, raw in _ARGUMENT.findall(message[:16384]):
            if len(self.flags) >= 800:
                break
            self.flags[name.replace("_", "-")] = _value(raw)


def _value(raw: str) -> Any:
    if raw[:1] in "'\"":
        return raw[1:-1]
    if raw in ("True", "False", "None"):
        return {"True": True, "False": False}.get(raw)
    try:
        return int(raw)
    except ValueError:
        pass
    try:
        return float(raw)
    except ValueError:
        return raw
