"""What is known before a deployment: the build, the flags it would refuse, and the checks."""

from __future__ import annotations

from collections.abc import Sequence

from ddtree_console.domain.build import Build, FlagMark
from ddtree_console.services.api import Preflight
from ddtree_console.ui.paint import Row, brief, heading, host_text, row, wrap
from ddtree_console.ui.views.checks import check_rows, counts, short_name, worst_first
from ddtree_console.ui.views.flagmarks import mark_rows

FIRST = ("torch", "triton", "sglang-kernel", "sgl-kernel", "flashinfer-python", "flashinfer", "transformers")
OF_MARKS = ("flags", "graphs")
"""checks that say what the marks of the flags say"""
SOURCES = {"ast": "flags read from its source", "help": "flags read from --help", "none": "flags not known"}


def build_text(build: Build) -> str:
    """sglang 0.5.12 · torch 2.11.0+cu130 · ... · 341 flags read from its source."""
    parts = [f"{build.engine or 'engine'} {build.release or 'of unknown release'}"]
    parts += [f"{name} {build.versions[name]}" for name in FIRST if build.versions.get(name)]
    if build.cuda and not any("+cu" in p for p in parts):
        parts.append(f"CUDA {build.cuda}")
    if build.ddtree:
        parts.append(f"DDTree as {build.ddtree.get('algorithm') or 'its own flags'}")
    how = SOURCES.get(build.source, build.source)
    parts.append(f"{len(build.flags)} {how}" if build.flags else how)
    if build.patched:
        parts.append(f"{len(build.patched)} installed files are patched")
    return host_text(" · ".join(parts))


def note(preflight: Preflight | None, running: bool, stale: bool) -> str:
    """The right end of the heading."""
    if running:
        return "checking…"
    if preflight is None:
        return "c checks"
    took = f" · {brief(preflight.seconds)}" if preflight.seconds else ""
    return ("edited since: c checks again" if stale else "c again") + f" · {counts(preflight.checks)}{took}"


def preflight_rows(
    preflight: Preflight | None,
    marks: Sequence[FlagMark],
    wide: int,
    *,
    running: bool = False,
    stale: bool = False,
    problem: str = "",
) -> list[Row]:
    """The pane. marks: of the profile as it stands in the form now. problem: why there is no preflight."""
    rows = [heading("PREFLIGHT", note(preflight, running, stale), wide, "title", "warn" if stale else "dim")]
    if problem:
        rows += wrap("? not known: " + host_text(problem), wide - 1, " ", "warn")
    if preflight is None:
        if running:
            rows.append(row(("   asking the host: build, memory, environment", "dim")))
        return rows + mark_rows(marks, wide)
    build = preflight.build
    if build.release or build.flags or build.versions:
        rows += wrap(build_text(build), wide - 1, "   ", "dim")
    said = [c.evidence for c in preflight.checks]
    for text in build.problems:
        if not any(text in evidence for evidence in said):
            rows += wrap("? " + host_text(text), wide - 3, " ", "dim")
    told = mark_rows(marks, wide)
    # The marks are of what is in the form now; the checks of the same name are of what was there when they ran.
    checks = [c for c in preflight.checks if not (told and c.name in OF_MARKS)]
    return rows + told + check_rows(worst_first(checks), wide, preflight.key.partition("/")[2])


def gate_rows(preflight: Preflight | None, wide: int, forced: bool, *, running: bool, problem: str = "") -> list[Row]:
    """The checks as far as they decide about a deployment: what failed refuses it, unless forced."""
    if running:
        return [row(("  checks      ", "dim"), ("asking the host…", "dim"))]
    if preflight is None:
        return wrap(f"checks not known: {host_text(problem)}", wide - 1, "  ", "warn") if problem else []
    service = preflight.key.partition("/")[2]
    bad, warned = preflight.failed, [c for c in preflight.checks if c.state == "warn"]
    rows = [row(("  checks      ", "dim"), (counts(preflight.checks) or "none", "bad" if bad else ""))]
    mark, style = ("! overridden: ", "warn") if forced else ("✖ refused: ", "bad")
    for check in bad:
        rows += wrap(f"{mark}{short_name(check, service)}: {host_text(check.evidence)}", wide - 1, "  ", style)
        if check.remedy:
            rows += wrap("-> " + host_text(check.remedy), wide - 1, "    ", "bold")
    for check in warned:
        rows += wrap(f"▲ {short_name(check, service)}: {host_text(check.evidence)}", wide - 1, "  ", "warn")
    return rows
