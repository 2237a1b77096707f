"""Differences of profiles and units as rows, and everything that `d` shows before it acts."""

from __future__ import annotations

from collections.abc import Sequence

from ddtree_console.domain.secrets import MASK, is_secret_name
from ddtree_console.services.api import DeployPreview, FieldDiff
from ddtree_console.ui.paint import Row, fit, heading, host_text, row, wrap


def _value(name: str, text: str) -> str:
    return MASK if text and is_secret_name(name) else host_text(text)


def diff_rows(title: str, diffs: Sequence[FieldDiff], wide: int, none: str = "no difference") -> list[Row]:
    """One row a change: where, name, old -> new."""
    rows = [heading(title, f"{len(diffs)} changed" if diffs else none, wide)]
    for d in diffs:
        name = host_text(d.name, 60)
        old, new = _value(d.name, d.old) or "–", _value(d.name, d.new) or "–"
        head = f"  {host_text(d.where, 20)} {name}  "
        if len(head) + len(old) + len(new) + 4 <= wide:
            rows.append(row((head, ""), (old, "bad"), (" -> ", "dim"), (new, "good")))
        else:
            rows += [
                row((head, "")),
                *wrap("- " + old, wide - 1, "    ", "bad"),
                *wrap("+ " + new, wide - 1, "    ", "good"),
            ]
    return rows


def unit_diff_rows(lines: Sequence[str], wide: int) -> list[Row]:
    """A unified diff of unit files."""
    if not lines:
        return []
    rows = [heading("UNIT FILE", "on disk -> rendered", wide)]
    for line in lines:
        style = {"+": "good", "-": "bad", "@": "dim"}.get(line[:1], "dim")
        rows.append(row(("  " + fit(host_text(line), wide - 3).rstrip(), style)))
    return rows


def notice_rows(preview: DeployPreview, wide: int, forced: bool) -> list[Row]:
    """Refusals and warnings."""
    rows: list[Row] = []
    for text in preview.refusals:
        mark, style = ("! overridden: ", "warn") if forced and preview.forceable else ("✖ refused: ", "bad")
        rows += wrap(mark + host_text(text), wide - 1, "  ", style)
    for text in preview.warnings:
        rows += wrap("▲ " + host_text(text), wide - 1, "  ", "warn")
    return rows


def confirm_rows(preview: DeployPreview, wide: int, forced: bool, checks: Sequence[Row] = ()) -> list[Row]:
    """What happens, to whom, and what changes. checks: what the preflight says, as rows."""
    asked = preview.running_requests
    requests = (
        "unknown: the server does not say"
        if asked is None
        else f"{asked} running, will be lost"
        if asked
        else "none running"
    )
    return [
        row(
            ("  release     ", "dim"),
            (
                f"{host_text(preview.release_from or 'nothing', 40)} -> {host_text(preview.profile, 80)} on trial",
                "bold",
            ),
        ),
        row(("  requests    ", "dim"), (requests, "warn" if asked else "")),
        *checks,
        *notice_rows(preview, wide, forced),
        *diff_rows("AGAINST WHAT RUNS NOW", preview.diff_running, wide),
        *diff_rows("AGAINST THE STORED PROFILE", preview.diff_stored, wide),
        *unit_diff_rows(preview.unit_diff, wide),
        heading("COMMAND", "y copies it", wide),
        *wrap(host_text(preview.command), wide - 1, "  ", "dim"),
    ]
