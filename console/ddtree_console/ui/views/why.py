"""Why a service is in its state: verdict, evidence, remedy, and what else was seen."""

from __future__ import annotations

from ddtree_console.ui.paint import Row, heading, host_text, row, wrap
from ddtree_console.ui.views.deploy import outcome_rows, verdict_rows
from ddtree_console.ui.views.fleet import Item

EVIDENCE = 400


def why_rows(item: Item, wide: int) -> list[Row]:
    """Everything known about the state, the decisive first."""
    state, service, host = item.state, item.service, item.host
    rows: list[Row] = [row((f" {state.text} ", f"{state.colour} bold"), (item.service.key, "bold"))]
    if state.detail:
        rows += wrap(host_text(state.detail), wide - 1, "  ")
    if host.error:
        rows += wrap(host_text(host.error), wide - 1, "  ", "warn")
    tx = service.tx
    if tx is None:
        rows.append(row(("  no deployment of this service is known on the host", "dim")))
    else:
        for attempt in tx.attempts:
            if attempt.verdict is not None and not attempt.verdict.ok:
                name = host_text(f"{attempt.target} {attempt.profile}".strip(), 80)
                rows += [
                    row(("", "")),
                    heading(name, host_text(tx.tx, 40), wide, "bold"),
                    *verdict_rows(attempt.verdict, wide, EVIDENCE),
                ]
        rows += [
            row(("", "")),
            heading("OUTCOME", "still running" if tx.running else "", wide),
            *outcome_rows(tx, wide),
        ]
        rows += [row(("  · ", "dim"), (host_text(note, 300), "dim")) for note in tx.notes]
    for d in service.drift:
        text = f"≠ {d.flag}: asked {d.asked}, has {d.effective}"
        rows += wrap(host_text(text), wide - 1, "  ", "warn")
    for gpu in host.gpus.gpus:
        if gpu.fault:
            rows += wrap(f"GPU {gpu.index}: {host_text(gpu.fault)}", wide - 1, "  ", "bad")
    return rows
