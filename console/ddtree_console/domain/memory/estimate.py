"""What a launch will hold on its fullest GPU, whether that fits, and what would make it fit. Pure; never raises."""

from __future__ import annotations

from ddtree_console.domain.memory import levers
from ddtree_console.domain.memory.case import Launch, Refused, build
from ddtree_console.domain.memory.pool import Solved, limits, solve
from ddtree_console.domain.memory.shape import Unknown
from ddtree_console.domain.memory.types import Estimate, Inputs, Term

GiB = 1024**3
SPARE = 0.01
"""of the GPU: an estimate that leaves less is called tight."""


def gib(size: int) -> str:
    """Bytes as GiB with two decimals."""
    return f"{size / GiB:.2f} GiB"


def _terms(launch: Launch, found: Solved) -> tuple[Term, ...]:
    """Parts that sum to the free memory of the GPU; `free` is below 0 where they are too much."""
    case = launch.case
    context = case.free - case.ready
    each = case.target_cell
    width = f"{case.draft_tokens} draft tokens x " if case.draft_tokens else ""
    parts = (
        Term("weights", case.weights, f"of {launch.tp} GPUs each" if launch.tp > 1 else ""),
        Term("draft", case.draft, "inside the fraction" if case.draft_inside else "beside the fraction"),
        Term("kv pool", found.kv, f"{found.tokens:,} tokens x {each:,} bytes"),
        Term("draft kv pool", found.draft_kv, f"{found.tokens:,} tokens x {case.draft_cell:,} bytes"),
        Term(
            "hybrid state",
            found.state,
            f"{case.slot / 1024**2:.1f} MiB a slot; {width}{levers.many(found.requests, 'request')}",
        ),
        Term("graphs", found.graphs, "about; a real start corrects it"),
        Term("reserve", context + case.activations, f"context {gib(context)}, activations about the rest"),
        Term("free", found.left),
    )
    return tuple(term for term in parts if term.bytes or term.name in ("weights", "kv pool", "free"))


def verdict(launch: Launch, found: Solved) -> tuple[str, str]:
    """(verdict, binding term)."""
    case = launch.case
    if found.stop:
        return "does not fit", found.stop
    if launch.context_told and case.context_length > found.tokens:
        return "tight", "kv pool"
    if case.slot and case.asked is not None and found.requests < case.asked:
        return "tight", "hybrid state"
    if (launch.told and launch.fraction > launch.own) or found.left < SPARE * case.free:
        return "tight", "reserve"
    return "fits", ""


def estimate(inputs: Inputs) -> Estimate:
    """The whole estimate; what is not known says why in `problems`."""
    try:
        launch = build(inputs)
    except Refused as refused:
        free = min(inputs.free, default=0)
        return Estimate(
            "does not fit", "free", capacity=free, levers=(refused.lever,), problems=(str(refused),)
        )  # fmt: skip
    except Unknown as unknown:
        return Estimate(problems=(f"not known, because {unknown}",), capacity=max(0, min(inputs.free, default=0)))
    found = solve(launch.case, launch.fraction)
    least, greatest = limits(launch.case)
    word, binding = verdict(launch, found)
    problems = [*launch.notes, *inputs.target.problems, *(inputs.draft.problems if inputs.draft else ())]
    return Estimate(
        verdict=word,
        binding=binding,
        terms=_terms(launch, found),
        capacity=launch.case.free,
        tokens=found.tokens,
        bytes_per_token=launch.case.target_cell + launch.case.draft_cell,
        requests=found.requests,
        least=least,
        greatest=greatest,
        levers=levers.find(inputs, launch, found, (least, greatest)),
        problems=tuple(dict.fromkeys(problems)),
        learnt=inputs.learnt,
    )
