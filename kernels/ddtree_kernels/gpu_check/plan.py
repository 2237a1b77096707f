"""The stages in order, what each depends on, and what their results mean for a launch. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OPS = ("tree_build", "tree_attention", "tree_accept", "kv_commit")


@dataclass(frozen=True)
class Stage:
    """needs: stages without which this one says nothing new. limit: seconds, compiling included."""

    name: str
    needs: tuple[str, ...] = ()
    limit: float = 60.0


STAGES = (
    Stage("torch", limit=90.0),
    Stage("memory", ("torch",)),
    Stage("triton", ("torch", "memory")),
    *(Stage(op, ("triton",), 120.0) for op in OPS),
    Stage("graph", ("torch", "memory")),
    Stage("kernels in a graph", (*OPS, "graph"), 120.0),
)


@dataclass(frozen=True)
class Result:
    """state: ok | fail | skip. evidence: one line. remedy: '' where there is nothing to do."""

    stage: str
    state: str
    evidence: str
    seconds: float = 0.0
    remedy: str = ""


def missing(stage: Stage, results: Mapping[str, Result]) -> str:
    """The first stage that this one needs and that did not pass, '' for none."""
    return next((n for n in stage.needs if n not in results or results[n].state != "ok"), "")


def ended(stage: str, status: int, out: str, err: str, seconds: float, limit: float, killed: bool) -> Result:
    """The result of a child that gave none: a crash, a time limit, an end without a word. status: as of subprocess."""
    tail = next((line.strip() for line in reversed((err or out).splitlines()) if line.strip()), "no word")
    if killed:
        evidence = f"no end within {limit:g} s; last line: {tail}"
        return Result(stage, "fail", evidence, seconds, "a hang in the driver or the compiler: see the host's journal")
    if status < 0:
        evidence = f"its process died of signal {-status}: {tail}"
        return Result(stage, "fail", evidence, seconds, "see `dmesg` for Xid lines: the GPU may be lost")
    return Result(stage, "fail", f"its process ended with {status}: {tail}", seconds)


def _works(results: Mapping[str, Result], *names: str) -> bool | None:
    """Whether those stages passed; None where one did not run."""
    found = [results[n].state if n in results else "skip" for n in names]
    if "fail" in found:
        return False
    return None if "skip" in found else True


def verdict(results: Mapping[str, Result]) -> dict[str, Any]:
    """What works, and how to start: {"triton", "kernels", "graphs": true | false | null, "start": [line, ..]}."""
    triton, graphs = _works(results, "triton"), _works(results, "graph")
    kernels, both = _works(results, *OPS), _works(results, "kernels in a graph")
    start: list[str] = []
    if _works(results, "torch", "memory") is not True:
        start.append("do not start here yet: torch cannot use this GPU (see the first stage that failed)")
        return {"triton": triton, "kernels": kernels, "graphs": graphs, "start": start}
    if triton is False:
        start.append("--attention-backend flashinfer (or fa3): Triton cannot compile or run here")
        start.append("prefill graph off, it compiles through Triton: --disable-piecewise-cuda-graph")
        start.append("  (from 0.5.14 on: --cuda-graph-backend-prefill=disabled)")
        start.append("no DDTree: its kernels are Triton's; the linear way back works without them")
    elif kernels is False:
        start.append("no DDTree on this GPU: one of its kernels is wrong or does not compile here")
    if graphs is False:
        start.append("--disable-cuda-graph, and the prefill graph off too: capture does not work here")
    elif both is False:
        start.append("--disable-cuda-graph for DDTree: its kernels work, but not inside a graph")
    if not start:
        start.append("graphs and Triton work here: start with both on")
    return {"triton": triton, "kernels": kernels, "graphs": graphs, "start": start}
