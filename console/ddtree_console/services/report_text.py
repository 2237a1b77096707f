"""An incident as Markdown. Every text from a host passes `safe`: no control characters, no secrets, no markup."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ddtree_console
from ddtree_console.domain.findings.types import Finding, Remedy, from_json
from ddtree_console.domain.secrets import mask, mask_data
from ddtree_console.domain.text import last_bar, visible
from ddtree_console.domain.txview import Line
from ddtree_console.services.api import JournalLine

if TYPE_CHECKING:
    from ddtree_console.services.report import Incident, Start

HEAD, TAIL, AROUND = 30, 120, 12
"""log lines from the beginning, from the end, and around each decisive line."""
WIDTH = 2000
POINTS, STEP = 40, 64 << 20
"""points of a memory curve at most, and the bytes that make one worth a row."""
MIB = 1 << 20


def safe(text: Any, width: int = WIDTH) -> str:
    """One line of a host's text, shown as it is and as nothing else."""
    return mask(visible(str(text), width))


def inline(text: Any) -> str:
    """The same inside a sentence or a table cell."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", safe(text, 400))


def block(lines: Sequence[str], language: str = "") -> Iterator[str]:
    """Lines between fences that none of them can close."""
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield fence + language
    yield from lines
    yield fence
    yield ""


def clock(wall: float) -> str:
    """UTC, so that two people read the same."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(wall)) if wall > 0 else "not known"


def render(incident: Incident) -> str:
    """The whole file, ends with a newline."""
    parts = (_title, _finding, _attempts, _starts, _profile, _unit, _host, _missing)
    lines = [line for part in parts for line in part(incident)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _title(incident: Incident) -> Iterator[str]:
    view = incident.view
    yield f"# Incident: {inline(incident.key)}"
    yield ""
    yield f"Written {clock(incident.made)} by ddtree-console {ddtree_console.__version__}. Secrets are masked."
    yield ""
    if view is None:
        yield "No transaction of this service is known on its host."
        yield ""
        return
    outcome = f"{view.outcome}: {view.detail}".strip(": ") if view.outcome else "it still runs"
    rows = [
        ("transaction", f"{view.tx} ({view.what})"),
        ("began", clock(view.began_wall)),
        ("took", f"{view.t - view.began:.0f} s"),
        ("by", view.who),
        ("reason", view.reason),
        ("release", f"{view.source or 'nothing'} -> {view.target} ({view.profile})"),
        ("outcome", outcome),
        ("serves", view.serves),
    ]
    yield from _table(("", ""), [row for row in rows if row[1]])


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(inline(cell) for cell in row) + " |"
    yield ""


def _found(incident: Incident) -> list[tuple[str, Finding]]:
    found = []
    for start in incident.starts:
        verdict = start.attempt.verdict
        one = from_json(dict(verdict.finding)) if verdict is not None and verdict.finding else None
        if one is not None:
            found.append((start.attempt.target, one))
    if incident.service.finding is not None and incident.service.finding not in [one for _, one in found]:
        found.append(("now", incident.service.finding))
    return found


def _finding(incident: Incident) -> Iterator[str]:
    yield "## Findings"
    yield ""
    found = _found(incident)
    if not found:
        yield "None."
        yield ""
    for where, one in found:
        yield f"### {inline(where)}: {inline(one.slug)}"
        yield ""
        yield inline(one.summary)
        yield ""
        sure = f"{one.confidence:.0%} sure" + (", fatal" if one.fatal else "")
        yield f"- {sure}" + (f", in phase {inline(one.phase)}" if one.phase else "")
        if one.blames:
            yield f"- caused by the edit of {inline(one.blames)}"
        yield from (f"- rules out: {inline(text)}" for text in one.rules_out)
        yield from (f"{n}. {_remedy(remedy)}" for n, remedy in enumerate(one.remedies, 1))
        yield ""
        if one.evidence:
            yield from block([f"{e.line}: {safe(e.text)}" if e.line else safe(e.text) for e in one.evidence])


def steps(remedy: Remedy) -> str:
    """What a remedy changes and runs, in one line of raw text; '' for one that only advises."""
    bounds = {"raise": "to at least", "lower": "to at most"}
    told = []
    for edit in remedy.edits:
        value = "" if edit.value is None else f" {bounds.get(edit.op, 'to')} {edit.value}"
        told.append(f"{edit.op} {edit.target} {edit.name}{value}")
    return "; ".join([*told, *([f"run: {remedy.command}"] if remedy.command else [])])


def _remedy(remedy: Remedy) -> str:
    more = steps(remedy)
    return inline(remedy.text) + (f" ({inline(more)})" if more else "")


def _attempts(incident: Incident) -> Iterator[str]:
    if not incident.history:
        return
    yield "## Attempts, newest first"
    yield ""
    rows = []
    for entry in incident.history:
        changed = entry.edited or entry.changed
        finding = from_json(entry.raw.get("finding"))
        why = finding.summary if finding is not None else entry.cause
        what = "; ".join(str(x) for x in changed)
        rows.append((clock(entry.started), entry.target, what, entry.furthest, why, entry.outcome))
    yield from _table(("began", "release", "edited", "got to", "why it ended", "outcome"), rows)


def _starts(incident: Incident) -> Iterator[str]:
    for start in incident.starts:
        attempt, verdict = start.attempt, start.attempt.verdict
        yield f"## Start of {inline(attempt.target or '?')} {inline(attempt.profile)}".rstrip()
        yield ""
        if attempt.why:
            yield f"Why: {inline(attempt.why)}"
            yield ""
        for name, lines in (("steps", attempt.steps), ("rungs", attempt.rungs), ("phases", attempt.phases)):
            if lines:
                yield from _table((name, "state", "seconds", "last good", "detail"), [_row(line) for line in lines])
        if verdict is not None:
            said = "it served" if verdict.ok else f"{verdict.code}: {verdict.cause}"
            yield f"Verdict: {inline(said)}"
            if verdict.exit:
                told = (f"{k} {v}" for k, v in verdict.exit.items() if v not in ("", None))
                yield f"Exit: {inline(', '.join(told))}"
            yield ""
        yield from _memory(start)
        yield from _log(start)


def _row(line: Line) -> tuple[str, str, str, str, str]:
    took = "" if line.secs is None else f"{line.secs:.1f}"
    good = "" if not isinstance(line.last_good, (int, float)) else f"{line.last_good:.1f}"
    count = f"{line.done}/{line.total} " if line.total else ""
    return (line.name, line.state, took, good, f"{count}{line.detail}".strip())


def points(series: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """The points of a curve that say something: where it moved, and its end."""
    kept: list[tuple[float, int]] = []
    for at, used in series:
        if not kept or abs(used - kept[-1][1]) >= STEP:
            kept.append((at, used))
    if series and kept[-1] != series[-1]:
        kept.append(series[-1])
    step = -(-len(kept) // POINTS)
    return kept[::step] if step > 1 else kept


def _memory(start: Start) -> Iterator[str]:
    found = points(start.memory)
    if not found:
        return
    most = max(used for _, used in found) or 1
    yield "GPU memory of the slot, in MiB by seconds since the transaction began:"
    yield ""
    yield from block([f"{at:8.1f} s {used / MIB:10,.0f} {'#' * round(40 * used / most)}" for at, used in found])


def relevant(log: Sequence[JournalLine], evidence: Sequence[str]) -> list[int]:
    """Places of the lines worth keeping: beginning, end, and around what decided."""
    keep = {*range(min(HEAD, len(log))), *range(max(0, len(log) - TAIL), len(log))}
    wanted = [text for text in evidence if text.strip()]
    for i, line in enumerate(log):
        if any(text in line.text for text in wanted):
            keep.update(range(max(0, i - AROUND), min(len(log), i + AROUND + 1)))
    return sorted(keep)


def _log(start: Start) -> Iterator[str]:
    verdict = start.attempt.verdict
    if not start.log:
        return
    places = relevant(start.log, verdict.evidence if verdict is not None else ())
    yield f"Log of invocation {inline(start.attempt.invocation)} ({len(places)} of the last {len(start.log)} lines):"
    yield ""
    lines, last = [], -1
    for i in places:
        if i != last + 1:
            lines.append(f"… {i - last - 1} lines left out …")
        line, last = start.log[i], i
        lines += [f"{clock(line.when)[11:19]} {safe(last_bar(text))}" for text in (line.text or line.gap).split("\n")]
    yield from block(lines)


def _profile(incident: Incident) -> Iterator[str]:
    if not incident.profile:
        return
    yield "## Profile"
    yield ""
    yield from block(
        json.dumps(_masked(incident.profile), indent=2, ensure_ascii=True, sort_keys=True).split("\n"), "json"
    )
    effective = incident.service.http.info
    if effective:
        yield "What the server that runs now says of itself:"
        yield ""
        flat = {k: v for k, v in mask_data(effective).items() if not isinstance(v, (dict, list))}
        yield from block(json.dumps(flat, indent=2, ensure_ascii=True, sort_keys=True).split("\n"), "json")


def _masked(profile: Mapping[str, Any]) -> Any:
    """A secret's name is no secret: it says which entry of the host's file was used."""
    env = profile.get("env")
    names = {k: v for k, v in env.items() if isinstance(v, dict)} if isinstance(env, dict) else {}
    found = mask_data(profile)
    if names:
        found["env"] = {**found["env"], **names}
    return found


def _unit(incident: Incident) -> Iterator[str]:
    edited = incident.read.get("edited")
    if isinstance(edited, list) and edited:
        yield f"Edited by hand on the host: {inline(', '.join(map(str, edited)))}"
        yield ""
    if incident.rendered:
        yield "## Unit of that profile"
        yield ""
        yield from block([safe(line) for line in incident.rendered.rstrip("\n").split("\n")], "ini")
    if incident.unit and incident.unit != incident.rendered:
        yield "## Unit as systemd has it now"
        yield ""
        yield from block([safe(line) for line in incident.unit.rstrip("\n").split("\n")], "ini")


def _host(incident: Incident) -> Iterator[str]:
    host, unit = incident.host, incident.service.unit
    yield "## Host"
    yield ""
    rows = [
        ("host", host.name),
        ("boot", host.boot),
        ("systemd", host.systemd),
        ("python", host.python),
        ("driver", host.gpus.driver or host.gpus.fault or ""),
        *(
            (f"GPU {g.index}", f"{g.name} {_size(g.total)}, {_size(g.used)} used{_ill(g.fault)}")
            for g in host.gpus.gpus
        ),
        *((name, version) for name, version in sorted(incident.versions.items())),
    ]
    if unit is not None:
        now = f"{unit.active} {unit.sub}, result {unit.result}, {unit.restarts} restarts"
        rows.append(("unit now", f"{unit.unit}: {now}"))
    yield from _table(("", ""), [row for row in rows if row[1]])


def _size(used: int | None) -> str:
    return "?" if used is None else f"{used / MIB:,.0f} MiB"


def _ill(fault: str | None) -> str:
    return f", {fault}" if fault else ""


def _missing(incident: Incident) -> Iterator[str]:
    if incident.missing:
        yield "## Not in this file"
        yield ""
        yield from (f"- {inline(text)}" for text in incident.missing)
