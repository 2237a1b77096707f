"""Events of a transaction as lines: steps, rungs and phases with their times, the verdict with its evidence."""

from __future__ import annotations

from typing import Any

from ddtree_console.cli.output import safe, seconds
from ddtree_console.domain import events as ev
from ddtree_console.domain.findings.types import from_json
from ddtree_console.services.report_text import steps

MARKS = {"ok": ("✓", "good"), "fail": ("✖", "bad"), "skip": ("–", "dim"), "run": ("◐", "work")}
GOOD = ("committed",)
WORDS = {
    "committed": "● committed",
    "serving_uncommitted": "▲ serving, not committed",
    "went_back": "↻ went back to the known good",
    "went_way_back": "↻ went back to the way back",
    "stopped": "✖ failed, unit stopped",
    "nothing_serves": "✖ nothing serves",
    "left": "✖ failed, left as it is",
    "refused": "✖ refused, nothing was touched",
    "cut": "✖ cut by a reboot or power loss",
}


class Narrator:
    """Tells one transaction; keeps what it said, so that a running phase is announced once."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._began: tuple[str, float] | None = None
        self._running: set[tuple[str, str]] = set()
        self._stall = ""

    def tell(self, event: ev.Event) -> list[tuple[str, str]]:
        """Lines of an event as (safe text, colour); [] for one that says nothing new."""
        if self._began is None or self._began[0] != event.boot:
            self._began = (event.boot, event.t)
        at = f"{seconds(max(0.0, event.t - self._began[1])):>7}  "
        return [(safe(at + text), colour) for text, colour in self._lines(event)]

    def _lines(self, event: ev.Event) -> list[tuple[str, str]]:
        data: Any = event.data
        if event.kind == ev.BEGIN:
            self._running.clear()
            source, target = data.get("source") or "nothing", data.get("target") or "?"
            head = f"{data.get('what', 'deploy')} {self._key}  {source} -> {target}  {data.get('profile', '')}".rstrip()
            plan = f", on failure: {data.get('on_failure')}" if data.get("on_failure") else ""
            return [(f"{head}  by {data.get('who', '?')}{plan}", "")]
        if event.kind in (ev.STEP, ev.RUNG, ev.PHASE):
            return self._progress(event)
        if event.kind == ev.BACK:
            self._running.clear()
            return [(f"↻ going back to {data.get('target')} {data.get('profile', '')}: {data.get('why', '')}", "warn")]
        if event.kind == ev.VERDICT:
            return self._verdict(data)
        if event.kind == ev.DRIFT:
            must = " (must)" if data.get("must") else ""
            text = f"≠ drift{must}: {data.get('flag')} asked {data.get('asked')}, effective {data.get('effective')}"
            return [(text, "warn")]
        if event.kind == ev.REQUEST:
            return [(f"request {data.get('request')} by {data.get('who', '?')}: {data.get('state', '')}", "warn")]
        if event.kind == ev.NOTE:
            return [(f"· {data.get('text', '')}", "dim")]
        if event.kind == ev.OUTCOME:
            return outcome(data)
        return self._words(data) if event.kind == ev.PROGRESS else [(f"? {event.line()}", "dim")]

    def _words(self, data: Any) -> list[tuple[str, str]]:
        """What it does by itself is a phase's line already; a stall is told once, and again when it is another."""
        stall, before = str(data.get("stall") or ""), self._stall
        self._stall = stall
        return [(f"    ▲ {data.get('words', stall)}", "warn")] if stall and stall != before else []

    def _progress(self, event: ev.Event) -> list[tuple[str, str]]:
        data: Any = event.data
        name, state = str(data.get(event.kind, "?")), str(data.get("state", "run"))
        key = (event.kind, name)
        if state == "run":
            # Steps and rungs are told when they end; a phase may take minutes, so its start is told as well.
            if key in self._running or event.kind != ev.PHASE:
                return []
            self._running.add(key)
        else:
            self._running.discard(key)
        mark, colour = MARKS.get(state, ("?", "dim"))
        indent = "" if event.kind == ev.STEP else "    "
        took = seconds(data["secs"]) if isinstance(data.get("secs"), (int, float)) else ""
        good = (
            f"(last good start {seconds(data['last_good'])})" if isinstance(data.get("last_good"), (int, float)) else ""
        )
        words = (mark, name, took, good, str(data.get("detail") or ""))
        return [(indent + " ".join(w for w in words if w), colour)]

    @staticmethod
    def _verdict(data: Any) -> list[tuple[str, str]]:
        if data.get("ok"):
            return []
        lines = [(f"✖ {data.get('code', '')}: {data.get('cause', '')}", "bad")]
        finding = from_json(data.get("finding"))
        if finding is not None:
            blames = f" (by the edit of {finding.blames})" if finding.blames else ""
            lines.append((f"    {finding.slug}: {finding.summary}{blames}", "bad"))
        evidence = data.get("evidence")
        lines += [(f"    | {line}", "dim") for line in (evidence if isinstance(evidence, list) else [])[:20]]
        ended = data.get("exit")
        if isinstance(ended, dict) and ended.get("result"):
            lines.append((f"    unit: {' '.join(f'{k} {v}' for k, v in ended.items())}", "dim"))
        ways = [r.text + (f" ({x})" if (x := steps(r)) else "") for r in finding.remedies] if finding else []
        for way in ways or ([str(data["remedy"])] if data.get("remedy") else []):
            lines.append((f"    remedy: {way}", "warn"))
        return lines


def outcome(data: Any) -> list[tuple[str, str]]:
    """The end, and what serves by its own word."""
    state = str(data.get("state", "?"))
    colour = (
        "good" if state in GOOD else "warn" if state in ("went_back", "went_way_back", "serving_uncommitted") else "bad"
    )
    words = [WORDS.get(state, state), str(data.get("release") or ""), str(data.get("detail") or "")]
    lines = [("  ".join(w for w in words if w), colour)]
    if data.get("serves"):
        lines.append((f"serves: {data['serves']}", colour))
    return lines


def exit_code(data: Any) -> int:
    """Of `deploy` and `rollback`, from an outcome event's data."""
    code = data.get("exit_code")
    if isinstance(code, int) and not isinstance(code, bool):
        return code
    return ev.OUTCOMES.get(str(data.get("state")), 4)
