"""Why a service is in its state: the finding, the chain of attempts, verdicts, and what else was seen."""

from __future__ import annotations

from collections.abc import Sequence

from ddtree_console.domain.findings.types import Finding
from ddtree_console.domain.spec import Profile
from ddtree_console.services.api import HistoryEntry
from ddtree_console.ui.paint import Row, heading, host_text, row, wrap
from ddtree_console.ui.views.attempts import chain_rows
from ddtree_console.ui.views.deploy import outcome_rows, verdict_rows
from ddtree_console.ui.views.finding import finding_rows, verdict_finding
from ddtree_console.ui.views.fleet import Item

EVIDENCE = 400


def why_rows(
    item: Item,
    wide: int,
    *,
    finding: Finding | None = None,
    chosen: int = 0,
    base: Profile | None = None,
    entries: Sequence[HistoryEntry] = (),
    evidence: bool = True,
) -> list[Row]:
    """Everything known about the state, the decisive first.

    base: the profile that the finding's edits are shown on. entries: history, newest first. evidence: False where the
    journal below shows the decisive lines.
    """
    state, service, host = item.state, item.service, item.host
    rows: list[Row] = [row((f" {state.text} ", f"{state.colour} bold"), (service.key, "bold"))]
    if state.detail and finding is None:
        rows += wrap(host_text(state.detail), wide - 1, "  ")
    if host.error:
        rows += wrap(host_text(host.error), wide - 1, "  ", "warn")
    if finding is not None:
        rows += finding_rows(finding, wide, chosen=chosen, base=base, evidence=evidence)
    tx = service.tx
    rows += chain_rows(entries, tx, wide)
    if tx is None:
        rows.append(row(("  no deployment of this service is known on the host", "dim")))
    else:
        for attempt in tx.attempts:
            known = verdict_finding(attempt.verdict)
            if attempt.verdict is None or attempt.verdict.ok or (known is not None and known == finding):
                continue
            name = host_text(f"{attempt.target} {attempt.profile}".strip(), 80)
            rows += [
                row(("", "")),
                heading(name, host_text(tx.tx, 40), wide, "bold"),
                *verdict_rows(attempt.verdict, wide, EVIDENCE if evidence else 0),
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
