"""The timed step: one server at a time, in turn, on one backend, overlap off, graphs on; the phases of the trees."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.gpu import compare
from tests.gpu.servers import Ended, Server
from tests.gpu.steps import SIZES, Row, Run

NAMES = ("ar", "dflash", *(f"tree-{size}" for size in SIZES))
BATCHES, LEAST, MOST, TOKENS, SECONDS = (1, 8), 3, 6, 128, 115.0
GOAL = 1.24
WARM = 3
"""of how many prompts one warms up."""
Cells = dict[tuple[str, int], list[dict[str, float]]]


def timed(server: Server, prompts: Sequence[Sequence[int]], batch: int) -> tuple[dict[str, float], list[list[int]]]:
    """(tok_s, accept: tokens a verify pass, the prefill's own left out, step_ms; [tokens, passes] of each prompt).

    Answers end at their stop token, as users' do: what a model rambles behind it is drafted worse than any answer.
    """
    began = time.monotonic()
    with ThreadPoolExecutor(batch) as pool:
        got = list(pool.map(lambda p: server.generate(p, max_new_tokens=TOKENS, ignore_eos=False), prompts))
    took = time.monotonic() - began
    each = [[n := len(g["output_ids"]), int(g["meta_info"].get("spec_verify_ct") or n - 1)] for g in got]
    made, steps = sum(n for n, _ in each), max(1, sum(passes for _, passes in each))
    return {"tok_s": made / took, "accept": (made - len(got)) / steps, "step_ms": 1e3 * took * batch / steps}, each


def phases(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, float]:
    """Milliseconds a step of each phase between two `ddtree` sections."""
    steps = int(after.get("steps", 0)) - int(before.get("steps", 0))
    old, new = before.get("ms") or {}, after.get("ms") or {}
    if steps <= 0:
        return {}
    total = {n: new[n] * after["steps"] - old.get(n, 0.0) * int(before.get("steps", 0)) for n in new}
    return {name: round(value / steps, 4) for name, value in total.items()}


def speed(run: Run, found: Row) -> None:
    """Interleaved repeats until the time is up, three at least; the first round warms up and is not counted."""
    ready = [name for name in NAMES if name in run.fleet.ready()]
    found["missing"] = [name for name in NAMES if name not in ready]
    until = time.monotonic() + run.fleet.clock.left(SECONDS)
    cells: Cells = {}
    spent: dict[str, dict[str, float]] = {}
    by_prompt: dict[str, list[list[int]]] = {}
    repeat, longest = 0, 0.0
    while repeat <= MOST and (repeat <= LEAST or time.monotonic() + longest < until):
        began = time.monotonic()
        for batch in BATCHES:
            for name in ready:
                server = run.fleet.get(name)
                tree = name.startswith("tree")
                before = server.section() if tree else {}
                row, each = timed(server, run.answered if repeat else run.answered[::WARM], batch)
                if repeat:
                    cells.setdefault((name, batch), []).append(row)
                if repeat and batch == 1:
                    by_prompt[name] = each
                if tree:
                    spent[f"{name} batch {batch}"] = phases(before, server.section())
        repeat, longest = repeat + 1, max(longest, time.monotonic() - began)
        found.update(table=compare.table(cells), cells={f"{n} {b}": rows for (n, b), rows in cells.items()}, ms=spent,
                     by_prompt=by_prompt)  # fmt: skip
    judge(run, found, cells)


def judge(run: Run, found: Row, cells: Cells) -> None:
    """The goal, and whether every tree accepts at least what the chain does; under_linear: those that do not, with
    both lengths. A tree of 15 is the chain alone, so a near-tie in one answer can put it there."""
    linear = {b: compare.mean([r["accept"] for r in cells.get(("dflash", b), ())]) for b in BATCHES}
    trees = {key: compare.mean([r["accept"] for r in rows]) for key, rows in cells.items() if key[0][:4] == "tree"}
    under = {
        f"{n} {b}": [round(own, 3), round(linear[b], 3)] for (n, b), own in trees.items() if own < linear[b] - 1e-9
    }
    ratio = compare.best_ratio(cells, 1)
    logs = {name: run.fleet.servers[name].log for name in NAMES if name in run.fleet.servers}
    graphs = {name: "cuda graph: True" in log for name, log in logs.items()}
    # the plug-in's own way of writing the draft's KV failed and stock's went on: right, but slower
    fell_back = [name for name, log in logs.items() if "as in stock from now on" in log]
    found.update(ratio_at_batch_1=round(ratio, 3), ratio_at_batch_8=round(compare.best_ratio(cells, 8), 3), goal=GOAL,
                 tree_at_least_linear=not under, under_linear=under, graphs=graphs, fell_back=fell_back)  # fmt: skip
    found["ok"] = not under and ratio >= GOAL and all(graphs.values()) and not found["missing"] and not fell_back
    if not cells:
        raise Ended("no server to time")


def quick(run: Run, found: Row) -> None:
    """For the smoke run: DFLASH and a tree at batch 1, three times each in turn."""
    cells: Cells = {}
    for repeat in range(4):
        for name in ("dflash", "tree-31"):
            row, _ = timed(run.fleet.get(name), run.answered[::WARM], 1)
            if repeat:
                cells.setdefault((name, 1), []).append(row)
    found.update(table=compare.table(cells), ratio_at_batch_1=round(compare.best_ratio(cells, 1), 3), ok=True)
    found["ms"] = run.fleet.get("tree-31").section().get("ms")
