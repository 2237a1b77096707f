"""The decode bench's tables, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping

from ddtree_kernels.bench.decode_run import Tally
from ddtree_kernels.decode.round import STAGES
from ddtree_kernels.tiny.prompts import UNTRAINED

PARTS = (*STAGES, "gap")
Parts = Mapping[str, Mapping[str, float]]
"""Milliseconds of a round by way and part."""
Found = Mapping[str, Mapping[str, Tally]]
"""Tallies by way and prompt family."""
_HEAD = (
    "mode",
    "tok/s",
    "of auto",
    "of linear",
    "accept",
    "round ms",
    *PARTS,
    "untrained tok/s",
    "of linear",
    "accept",
)


def total(tallies: Mapping[str, Tally], untrained: bool) -> Tally:
    """Of all trained families, or of the untrained one."""
    found = Tally()
    for name, tally in tallies.items():
        if (name == UNTRAINED) == untrained:
            found.add(tally)
    return found


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _ratio(one: float, other: float) -> str:
    return f"{one / other:.2f}" if other else "–"


def table(found: Found, parts: Parts) -> list[str]:
    """One line a way."""
    lines = [_row(list(_HEAD)), "|---" * len(_HEAD) + "|"]
    totals = {way: (total(of, False), total(of, True)) for way, of in found.items()}
    none = (Tally(), Tally())
    auto, linear = totals.get("autoregressive", none), totals.get("linear", none)
    for way, (trained, other) in totals.items():
        of_way = parts.get(way, {})
        lines.append(_row([
            way, f"{trained.speed:.0f}", _ratio(trained.speed, auto[0].speed), _ratio(trained.speed, linear[0].speed),
            f"{trained.counts.accept_length or 0:.2f}", f"{trained.round_ms:.3f}",
            *(f"{of_way[part]:.3f}" if part in of_way else "–" for part in PARTS),
            f"{other.speed:.0f}", _ratio(other.speed, linear[1].speed), f"{other.counts.accept_length or 0:.2f}",
        ]))  # fmt: skip
    return lines


def by_family(found: Found, best: str) -> list[str]:
    """Accept lengths of linear and the best tree by family."""
    lines = [f"| family | linear accept | {best} accept | {best} of linear, tok/s |", "|---|---|---|---|"]
    for family, linear in found["linear"].items():
        tree = found[best][family]
        accepts = (f"{one.counts.accept_length or 0:.2f}" for one in (linear, tree))
        lines.append(_row([family, *accepts, _ratio(tree.speed, linear.speed)]))
    return lines


def goals(found: Found, parts: Parts, best: str) -> list[str]:
    """What the project asks of this table, and what it says."""
    auto, linear, tree = (total(found[way], False) for way in ("autoregressive", "linear", best))
    gap = max((of["gap"] / total(found[way], False).round_ms for way, of in parts.items()), default=0.0)
    accepts = (tree.counts.accept_length or 0) / (linear.counts.accept_length or 1)
    return [
        f"linear by autoregressive {_ratio(linear.speed, auto.speed)} (goal 1.5); {best} by linear "
        f"{_ratio(tree.speed, linear.speed)} (goal 1.24), accept length by linear's {accepts:.2f} (goal 1.1); "
        f"widest gap {gap:.1%} of a round (goal below 5 %)"
    ]
