"""A finding as rows: what it is, how sure, what it rules out, and its remedies in order with the edits they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtree_console.domain.diff import FieldChange, diff_profiles
from ddtree_console.domain.findings.apply import Applied, make
from ddtree_console.domain.findings.types import Edit, Evidence, Finding, Remedy, from_json
from ddtree_console.domain.secrets import is_secret_name
from ddtree_console.domain.snapshot import ServiceSnapshot
from ddtree_console.domain.spec import Profile
from ddtree_console.domain.txview import Attempt, TxView, Verdict
from ddtree_console.ui.paint import Piece, Row, fit, heading, host_text, row, wrap

EVIDENCE = 40
"""lines of evidence shown at most; a finding needs a handful"""


def verdict_finding(verdict: Verdict | None) -> Finding | None:
    """The finding that came with a verdict, None where there is none."""
    return from_json(dict(verdict.finding)) if verdict is not None and verdict.finding else None


def failed_attempt(tx: TxView | None) -> Attempt | None:
    """The newest start of a transaction that ended badly."""
    attempts = tx.attempts if tx is not None else ()
    return next((a for a in reversed(attempts) if a.verdict is not None and not a.verdict.ok), None)


def finding_of(service: ServiceSnapshot | None) -> Finding | None:
    """What is wrong now, else why the last start ended; None where nothing was found."""
    if service is None:
        return None
    if service.finding is not None:
        return service.finding
    attempt = failed_attempt(service.tx)
    return verdict_finding(attempt.verdict) if attempt is not None else None


def release_of(service: ServiceSnapshot | None) -> str:
    """The release that `finding_of` is about; '' where none is known."""
    if service is None:
        return ""
    if service.finding is not None:
        return service.release.committed
    attempt = failed_attempt(service.tx)
    return attempt.target if attempt is not None else ""


def sure(finding: Finding) -> str:
    """95 % sure · phase graphs."""
    parts = [f"{finding.confidence:.0%} sure".replace("%", " %")]
    if finding.phase:
        parts.append(f"phase {host_text(finding.phase, 40)}")
    return " · ".join(parts)


def line(finding: Finding | None) -> Piece:
    """The verdict in one sentence."""
    if finding is None:
        return "", ""
    return ("✖ " if finding.fatal else "▲ ") + host_text(finding.summary or finding.slug), (
        "bad" if finding.fatal else "warn"
    )


def edit_text(edit: Edit) -> str:
    """raise mem-fraction-static to at least 0.31: an edit without a profile to make it on."""
    value = "" if edit.value is None else ("***" if is_secret_name(edit.name) else str(edit.value))
    limit = {"raise": "to at least ", "lower": "to at most "}.get(edit.op, "")
    return host_text(f"{edit.op} {edit.name} {limit if value else ''}{value}".rstrip(), 300)


def change_rows(changes: Sequence[FieldChange], wide: int, indent: str) -> list[Row]:
    """A small diff: one row a change."""
    rows: list[Row] = []
    for c in changes:
        name = host_text(f"{c.where} {c.name}" if c.where != c.name else c.where, 80)
        old, new = host_text(c.old, 600) or "–", host_text(c.new, 600) or "–"
        if len(indent) + len(name) + len(old) + len(new) + 7 <= wide:
            rows.append(row((f"{indent}{name}  ", ""), (old, "bad"), (" -> ", "dim"), (new, "good")))
        else:
            rows.append(row((indent + fit(name, max(4, wide - len(indent))).rstrip(), "")))
            rows += [*wrap("- " + old, wide, indent + "  ", "bad"), *wrap("+ " + new, wide, indent + "  ", "good")]
    return rows


def applied_rows(base: Profile, applied: Applied, wide: int, indent: str) -> list[Row]:
    """The edits as made on a profile, what was guessed, and what could not be made."""
    rows = change_rows(diff_profiles(base, applied.profile), wide, indent)
    for text in applied.guesses:
        rows += wrap("? " + host_text(text), wide, indent, "warn")
    for text in applied.problems:
        rows += wrap("✖ not made: " + host_text(text), wide, indent, "bad")
    return rows


def remedy_rows(
    remedy: Remedy, number: int, chosen: bool, wide: int, base: Profile | None, defaults: Mapping[str, Any]
) -> list[Row]:
    """One way out."""
    mark = "▸" if chosen else " "
    style = "bold" if chosen else ""
    rows = wrap(host_text(remedy.text or "change this"), wide - 1, "     ", style)
    rows[0] = row((f" {mark}{number} ", "title" if chosen else "dim"), (rows[0][0][0][4:], style))
    if remedy.edits and base is not None:
        rows += applied_rows(base, make(base, remedy, defaults), wide - 1, "       ")
    elif remedy.edits:
        for edit in remedy.edits:
            rows += wrap(edit_text(edit), wide - 1, "       ")
    if remedy.command:
        rows += wrap("$ " + host_text(remedy.command), wide - 1, "       ", "work")
    return rows


def finding_rows(
    finding: Finding,
    wide: int,
    *,
    chosen: int = 0,
    base: Profile | None = None,
    defaults: Mapping[str, Any] | None = None,
    evidence: bool = True,
) -> list[Row]:
    """All of a finding. base: the profile that its edits are shown on. chosen: index of the remedy that `a` takes."""
    rows = [
        heading(
            "FINDING",
            f"{host_text(finding.slug, 60)} · {sure(finding)}",
            wide,
            f"{'bad' if finding.fatal else 'warn'} bold",
        )
    ]
    text, style = line(finding)
    rows += wrap(text, wide - 1, "  ", f"{style} bold")
    if finding.blames:
        rows += wrap(f"the last edit did it: {host_text(finding.blames, 120)}", wide - 1, "  ", "warn")
    for excluded in finding.rules_out:
        rows += wrap("– " + host_text(excluded), wide - 1, "  ", "dim")
    if finding.remedies:
        keys = "a applies · y copies a command" + (" · 1-9 chooses" if len(finding.remedies) > 1 else "")
        rows.append(heading("REMEDIES", keys, wide))
        for i, remedy in enumerate(finding.remedies[:9]):
            rows += remedy_rows(remedy, i + 1, i == chosen, wide, base, defaults or {})
    else:
        rows.append(row(("  no remedy is known; the lines below are what decided", "dim")))
    if evidence:
        rows += evidence_rows(finding.evidence, wide)
    return rows


def evidence_rows(found: Sequence[Evidence], wide: int) -> list[Row]:
    """The decisive lines, as they came."""
    if not found:
        return []
    rows = [heading("EVIDENCE", f"{len(found)} line{'s' if len(found) > 1 else ''}", wide)]
    for piece in found[:EVIDENCE]:
        number = f"{piece.line:>6} " if piece.line else "       "
        rows.append(row((number, "dim"), ("│ ", "dim"), (fit(host_text(piece.text), max(8, wide - 10)).rstrip(), "")))
    return rows
