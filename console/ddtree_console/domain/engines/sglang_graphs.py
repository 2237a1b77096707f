"""What each release of SGLang makes of its CUDA-graph flags. Pure; told from the flags that the build itself has."""

from __future__ import annotations

from collections.abc import Collection

from ddtree_console.domain.build import Build, flag
from ddtree_console.domain.engines.sglang_renames import number

NONE, OPT_IN, OPT_IN_DECODE, PIECEWISE, PHASES = range(5)
"""prefill graph: none | on request, and --disable-cuda-graph stops it too (to 0.5.6) | on request, and only the decode
graph stops (0.5.7 to 0.5.9) | captured unless told otherwise, only the decode graph stops (0.5.10 to 0.5.13) | a switch
for each phase (0.5.14 and later)."""


def regime(build: Build) -> int:
    """Which of them this build has; forks keep the flags of the release that they stem from."""
    if flag(build, "cuda-graph-backend-prefill") is not None:
        return PHASES
    if flag(build, "disable-piecewise-cuda-graph") is not None:
        return PIECEWISE
    if flag(build, "enable-piecewise-cuda-graph") is None:
        return NONE
    release = number(build.release)
    return OPT_IN if release is not None and release < (0, 5, 7) else OPT_IN_DECODE


def says(build: Build, name: str, on: Collection[str], values: dict[str, str]) -> tuple[str, str, str]:
    """(state, what to add, sentence) of a graph flag that is set; ('', '', '') for any other.

    on: every flag that is set, dash names. values: name -> value as text, of those that have one.
    """
    kind = regime(build)
    if name == "disable-cuda-graph":
        return _disable(kind, on, build.release)
    if name == "disable-piecewise-cuda-graph":
        left = "the decode graph is still captured" if "disable-cuda-graph" not in on else "the prefill graph"
        return "ok", "", f"stops the piecewise prefill graph{'; ' + left if left.startswith('the decode') else ''}"
    if name == "enable-piecewise-cuda-graph":
        if kind == PIECEWISE:
            return "deprecated", "", "changes nothing: this build captures the piecewise graph by itself"
        return "ok", "", "captures a piecewise prefill graph"
    if name == "disable-prefill-cuda-graph":
        return "ok", "", "stops the prefill graph; the decode graph is still captured"
    if name == "disable-decode-cuda-graph":
        return "ok", "", "stops the decode graph; the prefill graph is still captured"
    if name in ("cuda-graph-backend-prefill", "cuda-graph-backend-decode"):
        phase, value = name.rpartition("-")[2], values.get(name, "")
        return "ok", "", f"{'no' if value == 'disabled' else value or 'a'} {phase} graph"
    return "", "", ""


def _disable(kind: int, on: Collection[str], release: str) -> tuple[str, str, str]:
    at = f" in {release}" if release else ""
    if kind == NONE:
        return "ok", "", f"stops every graph{at}"
    if kind == OPT_IN:
        return "ok", "", f"stops every graph{at}, the piecewise one too"
    if kind == OPT_IN_DECODE:
        if "enable-piecewise-cuda-graph" in on:
            text = f"stops only the decode graph{at}: leave --enable-piecewise-cuda-graph out to stop the prefill graph"
            return "partial", "", text
        return "ok", "", f"stops the decode graph{at}; a prefill graph is captured only on request"
    if kind == PIECEWISE:
        if "disable-piecewise-cuda-graph" in on:
            return "ok", "", f"stops the decode graph{at}; --disable-piecewise-cuda-graph stops the prefill graph"
        text = f"stops only the decode graph{at}: the piecewise prefill graph is still captured"
        return "partial", "disable-piecewise-cuda-graph", f"{text}; add --disable-piecewise-cuda-graph"
    return "ok", "", f"stops the decode and the prefill graph{at}"
