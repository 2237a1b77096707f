"""What else would make a launch fit, best first: each line was tried through the same arithmetic. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ddtree_console.domain.memory.case import Launch, build
from ddtree_console.domain.memory.launch import text
from ddtree_console.domain.memory.pool import Solved, limits, solve
from ddtree_console.domain.memory.shape import Unknown
from ddtree_console.domain.memory.types import Inputs

GiB = 1024**3
Range = tuple[Any, Any]  # least and greatest fraction, None for none
Tried = tuple[Launch, Solved, Range]
MOST_REQUESTS = 257
"""limits of running requests that are tried, from 1."""
WIDEST = 8
"""GPUs of one host that are tried."""


def _with(inputs: Inputs, **flags: Any) -> Inputs:
    return replace(inputs, flags={**inputs.flags, **{name.replace("_", "-"): value for name, value in flags.items()}})


def _try(inputs: Inputs, at_once: bool = False) -> Tried | None:
    """The launch and its outcome; None where it does not work: at its fraction (at_once), or at any."""
    try:
        launch = build(inputs)
    except Unknown:
        return None
    found = solve(launch.case, launch.fraction)
    if not found.stop:
        return launch, found, (None, None)
    if at_once:
        return None
    limit = limits(launch.case)
    return None if limit[0] is None else (launch, found, limit)


def many(number: int, word: str) -> str:
    """1 request, 2 requests."""
    return f"{number:,} {word}" + ("" if number == 1 else "s")


def _gain(tried: Tried) -> str:
    _, found, (least, greatest) = tried
    if not found.stop:
        return f"{many(found.tokens, 'token')}, {many(found.requests, 'request')}"
    return f"with mem-fraction-static {least:.3f} to {greatest:.3f}"


def _most(top: int, least: int, change: Callable[[int], Inputs], at_once: bool) -> tuple[int, Tried] | None:
    """The greatest number from `least` to below `top` that works: at the fraction that is set, else at any."""
    kept = _try(change(least), at_once=True)
    now = kept is not None
    if kept is None:
        kept = None if at_once else _try(change(least))
    if kept is None:
        return None
    low, high = least, top
    while high - low > 1:
        middle = (low + high) // 2
        tried = _try(change(middle), now)
        if tried is None:
            high = middle
        else:
            low, kept = middle, tried
    return low, kept


def _best_limit(launch: Launch) -> int:
    """The lower --max-running-requests with which most really run; 0 where none works.

    Up to 0.5.12 the state of all requests that may run comes first, so that asking for more can run fewer.
    """
    best, most = 0, (0, 0)
    for asked in range(1, min(launch.case.asked or 1, MOST_REQUESTS)):
        found = solve(replace(launch.case, asked=asked), launch.fraction)
        if not found.stop and (found.requests, found.tokens) > most:
            best, most = asked, (found.requests, found.tokens)
    return best


def _narrower(inputs: Inputs, tokens: int) -> tuple[Inputs, str]:
    """The launch with that many tokens a verification, and how this build spells it."""
    if "speculative-ddtree-budget" in inputs.flags:
        return _with(inputs, speculative_ddtree_budget=tokens - 1), f"speculative-ddtree-budget {tokens - 1}"
    flags = {k: v for k, v in inputs.flags.items() if k != "speculative-dflash-block-size"}
    narrowed = replace(inputs, flags={**flags, "speculative-num-draft-tokens": tokens})
    return narrowed, f"speculative-num-draft-tokens {tokens}"


def _single(inputs: Inputs, launch: Launch, at_once: bool) -> Iterator[str]:
    """One change each, in the order in which they cost least. at_once: only what works at the fraction that is set."""

    case = launch.case
    if case.asked is not None and case.asked > 1:
        limit = _best_limit(launch)
        tried = _try(_with(inputs, max_running_requests=limit), at_once) if limit else None
        if tried is None and not at_once:
            limit, tried = _most(case.asked, 1, lambda n: _with(inputs, max_running_requests=n), False) or (0, None)
        if tried is not None:
            yield f"max-running-requests {limit}: {_gain(tried)}"
    if case.draft_tokens > 2:
        found = _most(case.draft_tokens, 2, lambda n: _narrower(inputs, n)[0], at_once)
        if found is not None:
            yield f"{_narrower(inputs, found[0])[1]}: {_gain(found[1])}"
    if case.prefills and not solve(replace(case, prefills=0, kept=0), launch.fraction).stop:
        flag = _no_prefill_graph(launch)
        tried = _try(_with(inputs, **{flag: True}), at_once)
        if tried is not None:
            yield f"{flag}: {_gain(tried)}"
    for flag, value in _types(inputs, launch):
        tried = _try(_with(inputs, **{flag: value}), at_once)
        if tried is not None:
            yield f"{flag} {value}: {_gain(tried)}" + (" (or a quantized model)" if flag == "quantization" else "")


def _no_prefill_graph(launch: Launch) -> str:
    """The flag that leaves out the prefill graph in this release."""
    return "disable-prefill-cuda-graph" if launch.rule.number >= (0, 5, 14) else "disable-piecewise-cuda-graph"


def _types(inputs: Inputs, launch: Launch) -> Iterator[tuple[str, str]]:
    if launch.kv_width > 1:
        yield "kv-cache-dtype", "fp8_e4m3"
    if launch.case.slot and (text(inputs.flags, "mamba-ssm-dtype") or launch.shape.state_dtype) == "float32":
        yield "mamba-ssm-dtype", "bfloat16"
    if not launch.shape.quantized and not text(inputs.flags, "quantization"):
        yield "quantization", "fp8"


def _wider(inputs: Inputs, launch: Launch) -> str:
    """The first wider tensor parallelism that works, on GPUs as free as the fullest one."""
    tp = launch.tp * 2
    while tp <= WIDEST:
        total = min(inputs.total, default=launch.case.free)
        more = replace(_with(inputs, tp_size=tp, base_gpu_id=0), free=(launch.case.free,) * tp, total=(total,) * tp)
        for alias in ("tp", "tensor-parallel-size"):
            more = replace(more, flags={k: v for k, v in more.flags.items() if k != alias})
        tried = _try(more)
        if tried is not None:
            return f"tp-size {tp} on {tp} GPUs like this one: {_gain(tried)}"
        tp *= 2
    return ""


def _together(inputs: Inputs, launch: Launch) -> str:
    """All changes at once, where no single one is enough."""
    words, changed = [], inputs
    if launch.case.asked is not None and launch.case.asked > 1:
        changed = _with(changed, max_running_requests=1)
        words.append("max-running-requests 1")
    if launch.case.slot and launch.case.draft_tokens > 2:
        changed, said = _narrower(changed, 2)
        words.append(said)
    for flag, value in _types(inputs, launch):
        changed = _with(changed, **{flag: value})
        words.append(f"{flag} {value}")
    tried = _try(changed) if words else None
    return f"together {', '.join(words)}: {_gain(tried)}" if tried is not None else ""


def _not_here(launch: Launch, found: Solved) -> str:
    case = launch.case
    need = case.weights + case.draft
    if need >= case.ready:
        what = "weights and draft" if case.draft else "weights"
        return f"not on this card: {what} take {need / GiB:.1f} of {case.ready / GiB:.1f} GiB"
    over = f", {-found.left / GiB:.1f} GiB too much" if found.left < 0 else ""
    return f"not on this card: {found.stop} leaves no fraction that works{over}"


def _room(launch: Launch, found: Solved, greatest: float) -> str:
    """About one request of the length that was set."""
    case = launch.case
    if not launch.context_told or case.context_length <= found.tokens or found.stop:
        return ""
    words = f"one request of {case.context_length:,} tokens (context-length) does not fit in the pool"
    low, high = int(launch.fraction * 1000), round(greatest * 1000)
    if solve(case, high / 1000).tokens < case.context_length:
        return f"{words} at any fraction: {solve(case, high / 1000).tokens:,} tokens at most"
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if solve(case, middle / 1000).tokens >= case.context_length else (middle, high)
    return f"{words}: it does from mem-fraction-static {high / 1000:.3f}"


def _more_requests(inputs: Inputs, launch: Launch, found: Solved) -> Iterator[str]:
    """A start that works and holds fewer requests than were asked for."""
    case = launch.case
    if not case.slot or case.asked is None or found.requests >= case.asked or found.stop:
        return
    changes = [(_with(inputs, **{flag: value}), f"{flag} {value}") for flag, value in _types(inputs, launch)]
    if case.draft_tokens > 3:
        changes.insert(0, _narrower(inputs, case.draft_tokens // 2))
    limit = _best_limit(launch)
    changes.insert(0, (_with(inputs, max_running_requests=limit or 1), f"max-running-requests {limit}"))
    for changed, words in changes:
        tried = _try(changed, at_once=True)
        if tried is not None and tried[1].requests > found.requests:
            yield f"{words}: {many(tried[1].requests, 'request')} instead of {found.requests}"


def find(inputs: Inputs, launch: Launch, found: Solved, limit: Range) -> tuple[str, ...]:
    """Lines for what does not fit, or is tight; empty where nothing need change."""
    least, greatest = limit
    if not found.stop:
        lines = [_room(launch, found, greatest or launch.fraction), *_more_requests(inputs, launch, found)]
        if launch.told and launch.fraction > launch.own and least is not None and least <= launch.own:
            lines.append(f"mem-fraction-static {launch.own:.3f} leaves what SGLang itself would leave")
        return tuple(line for line in lines if line)
    if least is not None:
        return (f"mem-fraction-static {least:.3f} to {greatest:.3f}", *_single(inputs, launch, True))
    lines = list(_single(inputs, launch, False))
    if not lines:
        joint = _together(inputs, launch)
        lines = [joint] if joint else [_not_here(launch, found)]
    return tuple(line for line in (*lines, _wider(inputs, launch)) if line)
