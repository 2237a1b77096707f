"""A transaction as rows: header, steps, the ladder with its phases, the verdict."""

from __future__ import annotations

from dataclasses import replace

from ddtree_console.domain.events import RUNGS
from ddtree_console.domain.findings.types import Finding
from ddtree_console.domain.txview import Attempt, Line, TxView, Verdict
from ddtree_console.ui.paint import Row, bar, brief, clock, fit, heading, host_text, row, width, wrap
from ddtree_console.ui.views.finding import sure, verdict_finding

GLYPHS = {"ok": ("✓", "good"), "run": ("◐", "work"), "fail": ("✖", "bad"), "skip": ("–", "dim")}
STEP_WORDS = {
    "lock": "locks",
    "verify": "verify",
    "keep": "keep",
    "stop": "stop",
    "free": "port and GPU free",
    "start": "start",
    "wait": "wait until it serves",
    "hold": "hold",
    "commit": "commit",
}
RUNG_WORDS = {
    "invocation": "new invocation",
    "process": "process stable",
    "listener": "the port is ours",
    "info": "model info 200",
    "token": "first token",
    "held": "held",
}
PHASE_WORDS = {
    "weights": "target weights",
    "kv cache": "KV cache",
    "draft kv cache": "draft KV cache",
    "graphs": "CUDA graphs",
    "draft graphs": "draft CUDA graphs",
}
OUTCOME_WORDS = {
    "committed": ("●", "committed", "good"),
    "serving_uncommitted": ("▲", "serving, not committed", "warn"),
    "went_back": ("↻", "failed, went back: the known good serves", "warn"),
    "went_way_back": ("↻", "failed, went back: the way back serves", "warn"),
    "stopped": ("✖", "failed, unit stopped", "bad"),
    "nothing_serves": ("✖", "nothing serves", "bad"),
    "left": ("✖", "failed, left as it is", "bad"),
    "refused": ("✖", "refused, nothing was touched", "bad"),
    "cut": ("✖", "cut by a reboot or power loss", "bad"),
}


def title(tx: TxView, key: str, t: float) -> str:
    """DEPLOY  ct129 / sglang-qwen   r11 -> r12 on trial   1:48 of 10:00."""
    what = "ROLLBACK" if tx.what == "rollback" else "DEPLOY"
    host, _, name = key.partition("/")
    trial = " on trial" if tx.running and tx.what != "rollback" else ""
    move = f"{host_text(tx.source or 'nothing', 40)} -> {host_text(tx.target or '?', 40)}{trial}"
    total = deadline(tx)
    end = t if tx.running else tx.t
    took = clock(end - tx.began) + (f" of {clock(int(total))}" if total and tx.running else "")
    return f"{what}  {host} / {name}   {move}   {took}"


def on_failure(tx: TxView, known_good: str, way_back: str) -> str:
    """r11, then linear-wrapper: what happens by itself if it fails; '' for a rollback."""
    if tx.what == "rollback":
        return ""
    if tx.on_failure in ("stop", "leave"):
        return {"stop": "stop the unit", "leave": "leave it as it is"}[tx.on_failure]
    if tx.on_failure != "back":
        return host_text(tx.on_failure, 80)
    names = dict.fromkeys(host_text(n, 40) for n in (known_good, way_back) if n)
    return ", then ".join(names) or "stop the unit"


def exit_words(result: object, code: object, status: object, restarts: object) -> str:
    """How a unit ended, as a person says it; codes are those of waitid(2)."""
    how = {1: f"exit status {status}", 2: f"killed by signal {status}", 3: f"killed by signal {status}, core dumped"}
    words = how.get(code, f"{code} {status}") if isinstance(code, int) and code else str(code or "")
    if isinstance(code, str) and code:
        words = f"{code} {status}"
    if not words:
        return host_text(str(result or "–"), 160)
    again = f" · {restarts} restarts" if restarts else ""
    return host_text(f"{result or '–'} · {words}{again}", 160)


def decisive(verdict: Verdict, lines: int) -> tuple[str, ...]:
    """At most so many evidence lines; they come with the decisive one first, and the cause itself is above already."""
    return tuple(x for x in verdict.evidence if x.strip() != verdict.cause.strip())[:lines]


def deadline(tx: TxView) -> float | None:
    """Seconds from the beginning until the total deadline, which events carry as a moment."""
    return tx.deadline - tx.began if tx.deadline is not None and tx.deadline > tx.began else None


def spent(line: Line, t: float) -> float | None:
    """Seconds of a line: in all, or so far."""
    if line.state == "run" and line.since is not None:
        return max(line.secs or 0.0, t - line.since)
    return line.secs


def steps_rows(attempt: Attempt, t: float, wide: int) -> list[Row]:
    """The steps side by side, broken into as many rows as the width needs; `wait` has the ladder instead."""
    rows: list[Row] = []
    now: Row = ((" ", ""),)
    for line in attempt.steps:
        glyph, style = GLYPHS.get(line.state, ("·", "dim"))
        detail = f" {host_text(line.detail, 120)}" if line.detail and line.state in ("fail", "run") else ""
        if line.name == "start" and attempt.invocation:
            detail = f", invocation {host_text(attempt.invocation[:4])}"
        words = STEP_WORDS.get(line.name, host_text(line.name, 40))
        if line.name == "wait" and line.state == "run":
            continue
        piece = fit(f"{words}{detail} {brief(spent(line, t))}".rstrip(), min(len(words) + len(detail) + 8, wide - 6))
        cell: Row = ((f"{glyph} ", style), (piece.rstrip() + "  ", "bad" if line.state == "fail" else ""))
        if width(now) + width(cell) > wide and len(now) > 1:
            rows.append(now)
            now = ((" ", ""),)
        now = (*now, *cell)
    return [*rows, now] if len(now) > 1 else rows


def ladder_rows(attempt: Attempt, t: float, wide: int, hold: float | None) -> list[Row]:
    """Phases and rungs with times now and of the last good start; what is still to come is dim."""
    label = max(20, min(52, wide - 28))
    good_head = "last good start" if wide >= 84 else "last good"
    rows: list[Row] = []
    wait = next((x for x in attempt.steps if x.name == "wait"), None)
    if wait is not None:
        glyph, style = GLYPHS.get(wait.state, ("·", "dim"))
        head = fit(STEP_WORDS["wait"], label + 2)
        rows.append(row((f" {glyph} ", style), (head, "bold"), (fit("now", 9, True), "dim"), ("  " + good_head, "dim")))
    # A rung begins when the one before it passed; while a phase of the engine still runs it is only waited for.
    loading = any(x.state == "run" for x in attempt.phases)
    rungs = [x for x in attempt.rungs if not (loading and x.state == "run")]
    seen = {x.name for x in rungs}
    early = [x for x in rungs if x.name in ("invocation", "process")]
    late = [x for x in rungs if x.name not in ("invocation", "process")]
    for line in early:
        rows.append(_line(line, _rung_words(line.name, None), t, label))
    for line in attempt.phases:
        rows.append(_line(line, PHASE_WORDS.get(line.name, host_text(line.name, 60)), t, label))
    for line in late:
        timed = replace(line, last_good=hold) if line.name == "held" and hold else line
        rows.append(_line(timed, _rung_words(line.name, hold), t, label))
    if attempt.verdict is None and wait is not None:
        coming = [f"○ {_rung_words(name, hold)}" for name in RUNGS if name not in seen]
        if coming:
            rows.append(row((fit("     " + "   ".join(coming), wide).rstrip(), "dim")))
    return rows


def _rung_words(name: str, hold: float | None) -> str:
    words = RUNG_WORDS.get(name, host_text(name, 40))
    return f"{words} {hold:.0f} s" if name == "held" and hold else words


def _line(line: Line, words: str, t: float, label: int) -> Row:
    glyph, style = GLYPHS.get(line.state, ("·", "dim"))
    so_far = spent(line, t)
    text = [(f"     {glyph} ", style)]
    room = label - 2
    if line.state == "run" and line.done is not None and line.total:
        full, empty = bar(line.done / line.total, 10)
        counted = f" {line.done}/{line.total}" + (f" {host_text(line.detail, 60)}" if line.detail else "")
        used = len(words) + 1 + 10
        text += [(words + " ", ""), (full, "work"), (empty, "dim"), (fit(counted, max(0, room - used)), "")]
    elif line.state == "run" and line.last_good and so_far is not None:
        part = min(0.99, so_far / line.last_good)
        full, empty = bar(part, 10)
        used = len(words) + 1 + 10
        text += [
            (words + " ", ""),
            (full, "dim"),
            (empty, "dim"),
            (fit(f" est. {part:.0%}", max(0, room - used)), "dim"),
        ]
    else:
        detail = f"  {host_text(line.detail, 160)}" if line.detail else ""
        text += [(fit(words + detail, room), "bad" if line.state == "fail" else "")]
    mark = "…" if line.state == "run" else " "
    now = "" if so_far is None else clock(so_far) + mark
    text.append((fit(now, 8, True), ""))
    text.append((fit(clock(line.last_good) if line.last_good is not None else "–", 9, True), "dim"))
    return tuple(text)


def verdict_rows(verdict: Verdict, wide: int, lines: int = 6) -> list[Row]:
    """Cause, remedy, exit and the last evidence lines."""
    if verdict.ok:
        return []
    finding = verdict_finding(verdict)
    note = host_text(verdict.code, 40) if finding is None else f"{host_text(finding.slug, 60)} · {sure(finding)}"
    rows = [heading("VERDICT", note, wide, "bad")]
    if finding is not None and finding.summary:
        rows += wrap(host_text(finding.summary), wide - 1, "  ", "bad")
        rows += _first_remedy(finding, wide)
    else:
        rows += wrap(host_text(verdict.cause or "no cause known"), wide - 1, "  ", "bad")
        if verdict.remedy:
            rows += wrap("-> " + host_text(verdict.remedy), wide - 1, "  ", "bold")
    if verdict.exit:
        known = exit_words(*(verdict.exit.get(k) for k in ("result", "code", "status", "restarts")))
        rows.append(row(("  exit  ", "dim"), (fit(known, wide - 9).rstrip(), "")))
    told = decisive(verdict, lines) if lines else ()
    if finding is not None and finding.evidence and lines:
        told = tuple(e.text for e in finding.evidence[:lines])
    for line in told:
        rows.append(row(("  │ ", "dim"), (fit(host_text(line), wide - 5).rstrip(), "dim")))
    return rows


def _first_remedy(finding: Finding, wide: int) -> list[Row]:
    """What `a` would do, and how much more `x` knows."""
    if not finding.remedies:
        return []
    first, more = finding.remedies[0], len(finding.remedies) - 1
    rows = wrap("-> " + host_text(first.text), wide - 1, "  ", "bold")
    keys = "a applies it" if first.edits else "x shows the command"
    others = f" and {more} more" if more else ""
    return [*rows, row(("     ", ""), (f"{keys} · x has the evidence{others}", "dim"))]


def words_rows(tx: TxView, wide: int) -> list[Row]:
    """What the wait sees now, in words; a start that is stuck says so."""
    if not tx.running or not tx.words:
        return []
    stuck = tx.words.startswith("stuck")
    mark = "▲ " if stuck else "· "
    return wrap(mark + host_text(tx.words, 300), wide - 1, "     ", "warn" if stuck else "work")


def body_rows(tx: TxView, t: float, wide: int) -> list[Row]:
    """All attempts, oldest first: a finished one in short, the current one whole."""
    rows: list[Row] = []
    for i, attempt in enumerate(tx.attempts):
        last = i == len(tx.attempts) - 1
        if len(tx.attempts) > 1:
            first = "trial" if tx.what != "rollback" else "rollback"
            name = f"{first if i == 0 else '↻ going back to'} {host_text(attempt.target, 60)}"
            rows.append(heading(f" {name}", host_text(attempt.profile, 60), wide, "work" if last else "dim"))
            before = tx.attempts[i - 1].verdict if i else None
            if attempt.why and i and (before is None or attempt.why != before.cause):
                rows += wrap(host_text(attempt.why), wide - 3, "   ", "dim")
        rows += steps_rows(attempt, t, wide)
        if last or attempt.verdict is None:
            rows += ladder_rows(attempt, t, wide, tx.hold)
        if last:
            rows += words_rows(tx, wide)
        if attempt.verdict is not None:
            rows += verdict_rows(attempt.verdict, wide, 6 if last else 2)
    for flag, asked, effective in tx.drift:
        rows.append(row((" ≠ ", "warn"), (host_text(f"drift: {flag} asked {asked}, has {effective}", 300), "warn")))
    for note in tx.notes[-3:]:
        rows.append(row(("   ", ""), (fit(host_text(note), wide - 4).rstrip(), "dim")))
    return rows + outcome_rows(tx, wide)


def outcome_rows(tx: TxView, wide: int) -> list[Row]:
    """How it ended, and what serves now as the server itself said."""
    if tx.running:
        asked = f"asked: {', '.join(tx.requests)}" if tx.requests else ""
        return [row(("   " + host_text(asked, 200), "dim"))] if asked else []
    glyph, words, style = OUTCOME_WORDS.get(tx.outcome, ("?", host_text(tx.outcome, 40), "warn"))
    rows = [row((f" {glyph} {words}", f"{style} bold"))]
    if tx.detail:
        rows += wrap(host_text(tx.detail), wide - 2, "   ")
    if tx.serves:
        rows += wrap("serves now: " + host_text(tx.serves), wide - 2, "   ", "good")
    return rows
