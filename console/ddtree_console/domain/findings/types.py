"""A diagnosed cause: what it is, how sure, where it stands in the log, and what to change. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Union

Value = Union[str, int, float, bool, None]


@dataclass(frozen=True)
class Edit:
    """One change that a remedy makes.

    target: flag (dash name) | env | unit (directive) | profile (model, python, user, speculative.draft ...).
    op: set | remove | raise | lower. value: for set the value, for raise and lower the computed limit ("at least",
    "at most") where one is known, else None.
    """

    target: str
    name: str
    op: str
    value: Value = None


@dataclass(frozen=True)
class Remedy:
    """One way out. text: one plain sentence. edits: what `a` puts into the form. command: exact, for the host."""

    text: str
    edits: tuple[Edit, ...] = ()
    command: str = ""


@dataclass(frozen=True)
class Evidence:
    """A decisive line. line: its 1-based position in what was fed. text: raw (sanitise and mask before it is shown)."""

    line: int
    text: str


@dataclass(frozen=True)
class Finding:
    """slug: of the taxonomy, or `unknown`. confidence: 0 to 1. fatal: the wait may end.

    rules_out: causes that this evidence excludes, one sentence each. phase: what was under way. blames: the flag edited
    last, where that edit is the cause, else ''. rule: id of the rule that decided.
    """

    slug: str
    summary: str
    confidence: float = 1.0
    fatal: bool = False
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    rules_out: tuple[str, ...] = ()
    phase: str = ""
    blames: str = ""
    rule: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)


def _text(raw: Mapping[str, Any], name: str) -> str:
    value = raw.get(name)
    return value if isinstance(value, str) else ""


def _rows(raw: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    value = raw.get(name)
    return [x for x in value if isinstance(x, dict)] if isinstance(value, (list, tuple)) else []


def _remedy(raw: Mapping[str, Any]) -> Remedy:
    edits = []
    for row in _rows(raw, "edits"):
        value = row.get("value")
        kept: Value = value if isinstance(value, (str, int, float, bool)) else None
        edits.append(Edit(_text(row, "target"), _text(row, "name"), _text(row, "op"), kept))
    return Remedy(_text(raw, "text"), tuple(edits), _text(raw, "command"))


def from_json(raw: Any) -> Finding | None:
    """The finding in that JSON, None where it is none. Text from a host: never raises."""
    if not isinstance(raw, dict) or not isinstance(raw.get("slug"), str):
        return None
    confidence, ruled = raw.get("confidence"), raw.get("rules_out")
    evidence = []
    for row in _rows(raw, "evidence"):
        line = row.get("line")
        evidence.append(Evidence(line if isinstance(line, int) else 0, _text(row, "text")))
    return Finding(
        slug=raw["slug"],
        summary=_text(raw, "summary"),
        confidence=float(confidence) if isinstance(confidence, (int, float)) else 0.0,
        fatal=raw.get("fatal") is True,
        evidence=tuple(evidence),
        remedies=tuple(_remedy(row) for row in _rows(raw, "remedies")),
        rules_out=tuple(x for x in ruled if isinstance(x, str)) if isinstance(ruled, (list, tuple)) else (),
        phase=_text(raw, "phase"),
        blames=_text(raw, "blames"),
        rule=_text(raw, "rule"),
    )
