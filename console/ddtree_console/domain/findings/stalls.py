"""Silence: from when on it means a stall, and which one. Only for what a log shows; hosts ask CPU and reads as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddtree_console.domain.findings.start import Seen, Start
from ddtree_console.domain.findings.types import Evidence, Finding, Remedy

AFTER_ERROR_S = 60.0
"""silence after a cause: the process will not come back."""
LIMITS: tuple[tuple[str, float], ...] = (
    ("distributed", 120.0),
    ("weights", 240.0),
    ("kernel build", 900.0),
    ("graphs", 900.0),
    ("warm-up", 300.0),
    ("kv cache", 300.0),
    ("imports", 180.0),
)
DEFAULT_S = 300.0
SLOW_S = 300.0
NOTED_S = 120.0
"""a silence that a person noted in the log is a stall sooner."""
_OF_PHASE = (
    ("distributed", "stalled-rendezvous"),
    ("weights", "stalled-io"),
    ("kernel build", "stalled-lock"),
    ("graphs", "stalled-lock"),
    ("warm-up", "stalled-dead-child"),
)
_WORDS = {
    "stalled-rendezvous": "stuck: the ranks wait for one another and nothing has come for {s:.0f} s",
    "stalled-lock": "stuck: nothing has come for {s:.0f} s; it probably waits for a build lock that a killed run left",
    "stalled-io": "stuck: the weights are being read, but nothing has come for {s:.0f} s",
    "stalled-dead-child": "stuck: a child process is dead and its parent waits for it, for {s:.0f} s",
    "unknown": "stuck: nothing has come for {s:.0f} s",
}
_REMEDY = {
    "stalled-rendezvous": Remedy(
        "See which rank is missing, and the network interface that Gloo and NCCL use.", command="py-spy dump --pid PID"
    ),
    "stalled-lock": Remedy(
        "End the start, remove stale lock files of the JIT caches, start again.",
        command="find ~/.cache/torch_extensions ~/.cache/flashinfer ~/.triton -name 'lock*' -o -name '*.lock'",
    ),
    "stalled-io": Remedy(
        "Look at the storage: a process in state D, the mount, its server.", command="grep . /proc/pressure/io"
    ),
    "stalled-dead-child": Remedy(
        "Stop and start the unit; the dead child's own log or the kernel log tells why it died.",
        command="journalctl -k -n 100",
    ),
}


def limit(phase: str) -> float:
    """Seconds of silence in that phase after which it is a stall."""
    return next((s for word, s in LIMITS if word in phase), DEFAULT_S)


def finding(start: Start, flags: Mapping[str, Any]) -> Finding | None:
    """The stall, None while the silence is short."""
    phase = start.phases.now
    hint = next((s for s in reversed(start.seen) if s.rule is not None and s.rule.slug.startswith("stalled-")), None)
    bound = AFTER_ERROR_S if hint is not None else min(limit(phase), NOTED_S) if start.noted else limit(phase)
    if start.phases.served or start.over or start.silent < bound:
        return None
    slug = hint.rule.slug if hint is not None and hint.rule is not None else _of(start, flags)
    evidence = [Evidence(hint.line, hint.text)] if hint is not None else []
    if hint is None or hint.line != start.last_line:
        evidence.append(Evidence(start.last_line, start.last_text[:500]))
    return Finding(
        slug=slug,
        summary=_WORDS[slug].format(s=start.silent),
        confidence=0.7 if hint is not None else 0.5,
        fatal=True,
        evidence=tuple(evidence),
        remedies=(_REMEDY[slug],) if slug in _REMEDY else (),
        phase=phase,
        rule="silence",
    )


def dead_child(start: Start, flags: Mapping[str, Any], killed: Seen) -> Finding | None:
    """The stall of a launcher that waits for ever for a killed child, as the data-parallel controller does."""
    parallel = _many(flags) or any(s.rule is not None and s.rule.id == "dp-launch" for s in start.seen)
    left = killed.line < start.moved and bool(start.began_by - start.ended_by)  # others went on after the kill
    if killed.place != "kernel" or not (parallel or left) or start.over or start.silent < AFTER_ERROR_S:
        return None
    slug = "stalled-dead-child"
    return Finding(
        slug=slug,
        summary=_WORDS[slug].format(s=start.silent),
        confidence=0.7,
        fatal=True,
        evidence=(Evidence(killed.line, killed.text),),
        remedies=(_REMEDY[slug],),
        phase=start.phases.now,
        rule="silence",
    )


def _of(start: Start, flags: Mapping[str, Any]) -> str:
    """Which stall it is when no line says so: by what was under way and by who is missing."""
    phase = start.phases.now
    if start.ended_by and start.began_by - start.ended_by:
        return "stalled-dead-child"  # the others have read as many bytes and are done
    if phase in ("", "imports"):
        if _number(flags, "nnodes") > 1 or "NCCL " in start.last_text[:300]:
            return "stalled-rendezvous"
        return "stalled-dead-child" if phase and _many(flags) else "stalled-lock"
    return next((found for word, found in _OF_PHASE if word in phase), "unknown")


def _number(flags: Mapping[str, Any], name: str) -> int:
    value = flags.get(name)
    return value if isinstance(value, int) else 0


def _many(flags: Mapping[str, Any]) -> bool:
    return _number(flags, "dp-size") > 1


def slow(start: Start) -> Finding | None:
    """A phase that takes long and moves."""
    if start.over or start.phases.served or start.last is None or start.phase_began is None:
        return None
    took = start.last - start.phase_began
    if took < SLOW_S or not start.phases.now:
        return None
    return Finding(
        slug="slow-progress",
        summary=f"{start.phases.now}: {took:.0f} s so far, and it still moves.",
        confidence=0.6,
        evidence=(Evidence(start.last_line, start.last_text[:500]),),
        phase=start.phases.now,
        rule="slow",
    )
