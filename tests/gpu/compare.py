"""What a GPU run's answers mean: first divergences with their margins, distances of samples, the table. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

NEAR_TIE = 0.25
"""natural-log margin between the two best tokens below which bf16 kernels of another shape may choose the other."""


def divergence(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Where two token sequences first differ; None where one begins the other."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)


def judged(
    wanted: Sequence[Sequence[int]], got: Sequence[Sequence[int]], margins: Sequence[Sequence[float]]
) -> dict[str, Any]:
    """Compares answers with the plain target's. margins: of the plain target's two best tokens at every position.

    ok: no divergence, but at near-ties, whose margins are listed.
    """
    same = 0
    ties: list[dict[str, Any]] = []
    wrong: list[dict[str, Any]] = []
    for number, (w, g, m) in enumerate(zip(wanted, got, margins, strict=True)):
        at = divergence(w, g)
        if at is None and len(w) == len(g):
            same += 1
            continue
        margin = m[at] if at is not None and at < len(m) else None
        row = {"prompt": number, "position": at, "margin": margin}
        (ties if margin is not None and margin < NEAR_TIE else wrong).append(row)
    return {"ok": not wrong, "same": same, "near_ties": ties, "wrong": wrong}


def margins_of(answer: Mapping[str, Any]) -> list[float]:
    """Of an answer with top_logprobs_num 2: how far apart the two best tokens were at every position."""
    rows = answer.get("meta_info", {}).get("output_top_logprobs") or []
    return [abs(float(row[0][0]) - float(row[1][0])) if len(row) > 1 else float("inf") for row in rows]


def distance(a: Sequence[Any], b: Sequence[Any]) -> float:
    """Total variation between two samples, 0 to 1."""
    left, right = Counter(a), Counter(b)
    every = set(left) | set(right)
    return 0.5 * sum(abs(left[x] / len(a) - right[x] / len(b)) for x in every)


def mean(values: Sequence[float]) -> float:
    """0 for none."""
    return sum(values) / len(values) if values else 0.0


def table(cells: Mapping[tuple[str, int], Sequence[Mapping[str, float]]]) -> list[str]:
    """Markdown of the speed runs: (server, batch) -> repeats of tok_s, accept, step_ms."""
    rows = [
        "| server | batch | tokens/s | against DFLASH | accept length | step ms | repeats |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for (name, batch), runs in sorted(cells.items(), key=lambda item: (item[0][1], item[0][0])):
        speed = mean([r["tok_s"] for r in runs])
        base = mean([r["tok_s"] for r in cells.get(("dflash", batch), ())])
        ratio = f"{speed / base:.2f}x" if base else "–"
        accept, step = mean([r["accept"] for r in runs]), mean([r["step_ms"] for r in runs])
        rows.append(f"| {name} | {batch} | {speed:.0f} | {ratio} | {accept:.2f} | {step:.2f} | {len(runs)} |")
    return rows


def best_ratio(cells: Mapping[tuple[str, int], Sequence[Mapping[str, float]]], batch: int) -> float:
    """The best tree's speed over linear DFLASH's at that batch, 0 where either is missing."""
    base = mean([r["tok_s"] for r in cells.get(("dflash", batch), ())])
    trees = [mean([r["tok_s"] for r in runs]) for (name, b), runs in cells.items() if b == batch and name[:4] == "tree"]
    return max(trees) / base if base and trees else 0.0
