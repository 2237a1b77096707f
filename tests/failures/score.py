"""Scores the engine of findings on the recorded cases: `python -m tests.failures.score [--half 1|2] [-v]`.

For each case: the slug of the first finding, its remedies (never a flag in the opposite direction), no fatal finding
for what is no failure, and no wrong fatal finding for any prefix of its log that ends before the decisive line.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ddtree_console.cli.explain import explain
from ddtree_console.config.rules import load_rules
from ddtree_console.domain.findings.rules import Rules, rules_from_json
from ddtree_console.domain.findings.types import Finding

CASES = Path(__file__).parent / "cases"
NO_FAILURE = ("healthy-start", "benign-warning", "slow-progress")
_ADVICE = re.compile(
    r"\b(raise|increase|higher|bigger|lower|smaller|reduce|fewer|drop|remove)\b[^.;,(]{0,30}?(--[a-z][a-z-]+)"
)
_UP = frozenset(("raise", "increase", "higher", "bigger"))


@dataclass(frozen=True)
class Case:
    """One case, its log as a file's lines with the bytes that the notation stands for."""

    id: str
    kind: str
    cause: str
    fatal: bool
    evidence: tuple[str, ...]
    lines: tuple[str, ...]
    remedy: str


def cases() -> list[Case]:
    """All cases, in the order of the file."""
    out = []
    for raw in (raw for path in sorted(CASES.glob("*.yaml")) for raw in yaml.safe_load_all(path.read_text("utf-8"))):
        if not isinstance(raw, dict):
            continue
        text = raw["excerpt"].replace("\\r", "\r").replace("\\x1b", "\x1b")
        out.append(
            Case(
                raw["id"], raw["kind"], raw["root_cause"], bool(raw["fatal"]),
                tuple(raw.get("evidence") or ()), tuple(text.rstrip("\n").split("\n")), str(raw.get("remedy") or ""),
            )
        )  # fmt: skip
    return out


def rules() -> Rules:
    """The builtin rules."""
    return rules_from_json(load_rules())


def found(lines: Sequence[str], known: Rules) -> tuple[Finding, ...]:
    """What `explain` finds in a file of these lines."""
    return explain(io.BytesIO("\n".join(lines).encode()), known).findings()


def decisive(case: Case) -> int:
    """Index of the first line that holds a part of the case's evidence, 0 where none is literally there."""
    for i, line in enumerate(case.lines):
        for text in case.evidence:
            if text[:60] in line or (len(text) > 30 and text[10:40] in line):
                return i
    return 0


def directions(remedy: str) -> dict[str, str]:
    """Flags that a case's remedy names with a direction -> raise | lower."""
    out: dict[str, str] = {}
    for word, flag in _ADVICE.findall(remedy.lower()):
        out.setdefault(flag[2:], "raise" if word in _UP else "lower")
    return out


def contradictions(case: Case, first: Finding | None) -> Iterator[str]:
    """Edits that go against the case's remedy, or that are never right."""
    wanted = directions(case.remedy)
    for remedy in first.remedies if first is not None else ():
        for edit in remedy.edits:
            if edit.target == "flag" and edit.op in ("raise", "lower") and wanted.get(edit.name, edit.op) != edit.op:
                yield f"{edit.op} --{edit.name} against {wanted[edit.name]}"
            if first is not None and first.slug == "kv-budget-too-small" and edit.name == "context-length":
                yield "the context length does not size the pool"


def judge(case: Case, known: Rules) -> list[str]:
    """What is wrong with the answer to a case, [] when it is right."""
    wrong: list[str] = []
    all_found = found(case.lines, known)
    first = all_found[0] if all_found else None
    slug = first.slug if first is not None else "nothing"
    if case.kind == "non-failure" or case.cause in NO_FAILURE:
        wrong += [f"fatal: {f.slug}: {f.evidence[0].text[:100] if f.evidence else ''}" for f in all_found if f.fatal]
    else:
        if slug != case.cause:
            wrong.append(f"{slug} instead of {case.cause}")
        elif first is not None and case.fatal and not first.fatal:
            wrong.append("not fatal")
        wrong += contradictions(case, first)
    end = len(case.lines) if not case.fatal else decisive(case)
    for n in range(1, end + 1):
        for one in found(case.lines[:n], known):
            if one.fatal and one.slug != case.cause:
                return [*wrong, f"prefix of {n} lines: fatal {one.slug}"]
    return wrong


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the figures; 1 when under 95 % are right or anything fatal was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", type=int, choices=(1, 2), help="only the first or second half of the file")
    parser.add_argument("-q", action="store_true", help="only the figure")
    args = parser.parse_args(argv)
    chosen, known = cases(), rules()
    middle = 35
    if args.half:
        chosen = chosen[:middle] if args.half == 1 else chosen[middle:]
    answers: dict[str, list[str]] = {case.id: judge(case, known) for case in chosen}
    bad: dict[str, Any] = {name: wrong for name, wrong in answers.items() if wrong}
    for name, wrong in bad.items():
        if not args.q:
            print(f"{name}: {'; '.join(wrong)}")
    right = len(chosen) - len(bad)
    print(f"{right} of {len(chosen)} right, {right / len(chosen):.1%}")
    alarms = [name for name, wrong in bad.items() if any("fatal" in w for w in wrong)]
    return int(right < 0.95 * len(chosen) or bool(alarms))


if __name__ == "__main__":
    sys.exit(main())
