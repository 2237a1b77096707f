"""What real starts on a host taught: their logs' figures against the estimate of the same launch. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ddtree_console.domain.memory import launch, pool
from ddtree_console.domain.memory.case import CONTEXT, build
from ddtree_console.domain.memory.shape import Unknown
from ddtree_console.domain.memory.types import Inputs

GiB = 1024**3
# names that the log reader gives to its figures (domain/engines/sglang_log.py)
WEIGHTS, DRAFT, AVAILABLE, TOKENS = "weights GB", "draft weights GB", "available GB", "kv cache tokens"
GRAPHS = ("graphs GB", "piecewise graphs GB", "draft graphs GB", "draft piecewise graphs GB")
MEASURED = (
    WEIGHTS, DRAFT, AVAILABLE, TOKENS, *GRAPHS, "kv cache GB", "draft kv cache GB", "hybrid state GB",
    "max_total_num_tokens", "max_running_requests",
)  # fmt: skip
FLAGS = (
    "base-gpu-id", "chunked-prefill-size", "context-length", "cuda-graph-backend-decode",
    "cuda-graph-backend-prefill", "cuda-graph-max-bs", "cuda-graph-max-bs-decode", "cuda-graph-max-bs-prefill",
    "disable-cuda-graph", "disable-cuda-graph-padding", "disable-decode-cuda-graph", "disable-overlap-schedule",
    "disable-piecewise-cuda-graph", "disable-prefill-cuda-graph", "disable-radix-cache", "dtype",
    "enable-piecewise-cuda-graph", "kv-cache-dtype", "language-only", "load-format", "mamba-full-memory-ratio",
    "mamba-radix-cache-strategy", "mamba-scheduler-strategy", "mamba-ssm-dtype", "max-mamba-cache-size",
    "max-prefill-tokens", "max-running-requests", "max-total-tokens", "mem-fraction", "mem-fraction-static",
    "page-size", "piecewise-cuda-graph-max-tokens", "quantization", "speculative-algo", "speculative-algorithm",
    "speculative-ddtree-budget", "speculative-dflash-block-size", "speculative-draft-kv-cache-dtype",
    "speculative-draft-load-format", "speculative-draft-model", "speculative-draft-model-path",
    "speculative-num-draft-tokens", "tensor-parallel-size", "tp", "tp-size",
)  # fmt: skip
"""flags that memory depends on: the only ones that are kept of a start."""
LEAST, SHARE = GiB, 0.25
"""A difference counts up to that share of its term, or LEAST: more is another's memory, or a log misread."""


def _figure(measured: Mapping[str, Any], name: str) -> float | None:
    value = measured.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < 1e12 else None


def _bounded(real: float, estimated: int) -> int:
    """real - estimated, 0 where that cannot be this launch's own."""
    found = int(real) - estimated
    return found if abs(found) <= max(LEAST, SHARE * estimated) else 0


def residual(inputs: Inputs, measured: Mapping[str, Any], *, free_then: bool = True) -> dict[str, int]:
    """Bytes by term that a start took more than its estimate; {} where nothing compares.

    inputs: of that very start. free_then: `free` was read just before or after it, so that what the build takes before
    it loads can be told; else the pool's difference holds that too.
    """
    try:
        plan = build(replace(inputs, residual={}))
    except Unknown:
        return {}
    case = plan.case
    found = _before_loading(case.free, measured) if free_then else {}
    tokens = _figure(measured, TOKENS)
    for name, term, estimated in ((WEIGHTS, "weights", case.weights), (DRAFT, "draft", case.draft)):
        real = _figure(measured, name)
        if real is not None and estimated:
            found[term] = _bounded(real * GiB, estimated)
    graphs = [value for value in (_figure(measured, name) for name in GRAPHS) if value is not None]
    again = build(replace(inputs, residual=found)).case
    solved = pool.solve(again, plan.fraction)
    if graphs:
        found["graphs"] = _bounded(sum(graphs) * GiB, solved.graphs)
    if tokens and solved.pooled and (case.cap is None or tokens < case.cap):
        found["kv pool"] = _bounded(tokens * case.cell, solved.tokens * case.cell)
    return {term: size for term, size in found.items() if size}


def _before_loading(free: int, measured: Mapping[str, Any]) -> dict[str, int]:
    """What the build takes before it loads anything, whatever the model."""
    available = _figure(measured, AVAILABLE)
    size = _bounded(free - available * GiB, CONTEXT) if available and free else 0
    return {"reserve": size} if size else {}


def _of_build(start: Mapping[str, Any], release: str, python: str) -> bool:
    """The same interpreter, and no other release where both are known."""
    told = str(start.get("release") or "")
    return str(start.get("python") or "") == python and (told == release or not told or not release)


def _flags(start: Mapping[str, Any]) -> Mapping[str, Any]:
    flags = start.get("flags")
    return flags if isinstance(flags, Mapping) else {}


def _measured(start: Mapping[str, Any]) -> Mapping[str, Any]:
    measured = start.get("measured")
    return measured if isinstance(measured, Mapping) else {}


def _sizes(raw: Any) -> tuple[int, ...]:
    return tuple(n for n in raw if type(n) is int and n > 0) if isinstance(raw, (list, tuple)) else ()


def _same(a: Mapping[str, Any], b: Mapping[str, Any], model: str, start: Mapping[str, Any]) -> bool:
    """Whether two launches hold the same weights on as many GPUs."""
    if str(start.get("model") or "") != model:
        return False
    names = ("speculative-algorithm", "quantization", "load-format")
    alike = all(launch.text(a, name) == launch.text(b, name) for name in names)
    draft = [launch.text(f, "speculative-draft-model-path") for f in (a, b)]
    wide = [launch.text(f, "tp-size") or "1" for f in (a, b)]
    return alike and draft[0] == draft[1] and wide[0] == wide[1]


def of(starts: Sequence[Mapping[str, Any]], inputs: Inputs, model: str, python: str) -> tuple[dict[str, int], str]:
    """(residual, what it comes from) for a launch of `model` (as the profile names it) by that interpreter's build.

    starts: as the host keeps them, oldest first. The newest one of the same launch counts; without one, of any start of
    this build what it takes before it loads.
    """
    of_build = [s for s in reversed(starts) if _of_build(s, inputs.release, python) and _measured(s)]
    for start in of_build:
        if _same(_flags(start), inputs.flags, model, start):
            free = _sizes(start.get("free"))
            then = replace(
                inputs, flags=_flags(start), free=free or inputs.free, total=_sizes(start.get("total")) or inputs.total
            )  # fmt: skip
            found = residual(then, _measured(start), free_then=bool(free))
            return found, _words(then, _measured(start)) if found else ""
    for start in of_build:
        found = _before_loading(min(_sizes(start.get("free")), default=0), _measured(start))
        if found:
            return found, "what this build takes before it loads is from a start of another model"
    return {}, ""


def _words(then: Inputs, measured: Mapping[str, Any]) -> str:
    """What the estimate of that start was worth."""
    tokens = _figure(measured, TOKENS)
    plan = build(replace(then, residual={}))
    if not tokens:
        return "corrected by the last start here"
    estimated = pool.solve(plan.case, plan.fraction).tokens
    return f"corrected by the last start here: {int(tokens):,} tokens, {estimated:,} were estimated"
