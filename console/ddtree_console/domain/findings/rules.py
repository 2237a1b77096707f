"""Rules as plain data, compiled: which line means which cause. Pure; a row that cannot be used is left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ROLES = ("cause", "symptom", "wrapper", "consequence", "benign", "badge")
PLACES = ("exception", "message", "line", "systemd", "kernel")
FATAL = ("always", "exit", "never")
SPAN = 4096
"""characters of a line that rules look at."""
STRENGTH = {"cause": 50, "symptom": 40, "wrapper": 30, "badge": 25, "consequence": 10, "benign": 0}
WORD = re.compile(r"[a-z]{4,}")
_PLAIN_WORDS = frozenset(
    [
        "error",
        "errors",
        "file",
        "line",
        "memory",
        "model",
        "that",
        "this",
        "with",
        "from",
        "have",
        "please",
        "cuda",
        "failed",
        "failure",
        "not",
        "found",
        "torch",
        "exception",
        "python",
        "module",
        "size",
        "type",
        "value",
        "version",
        "process",
        "rank",
        "when",
        "will",
        "cannot",
        "which",
    ]
)


@dataclass(frozen=True)
class Rule:
    """One row. any: literals, one of which the line must hold (letter case is ignored, ends are word ends).

    match, unless: patterns on the line; named groups of `match` may be used in texts. where: PLACES. phases, frames:
    what was under way, and what the traceback must have passed through. by_phase: phase word -> slug. served: None for
    any time, else whether the server had been ready before. strength: of two explanations the stronger wins, then the
    earlier. fatal: always (the line itself ends this start) | exit (only with a process that ended) | never.
    """

    id: str
    slug: str
    role: str = "cause"
    any: tuple[str, ...] = ()
    match: re.Pattern[str] | None = None
    unless: re.Pattern[str] | None = None
    where: frozenset[str] = frozenset(("exception", "message", "line"))
    phases: tuple[str, ...] = ()
    frames: re.Pattern[str] | None = None
    by_phase: Mapping[str, str] = field(default_factory=dict)
    served: bool | None = None
    strength: int = 50
    confidence: float = 0.9
    fatal: str = "exit"
    summary: str = ""
    remedies: tuple[Mapping[str, Any], ...] = ()
    rules_out: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    family: str = ""

    @property
    def generic(self) -> bool:
        """Whether it knows only an exception's class and what was under way."""
        return self.role == "symptom" and self.strength < STRENGTH["wrapper"]


def _words(raw: Any) -> tuple[str, ...]:
    if isinstance(raw, str):
        return (raw,)
    return tuple(x for x in raw if isinstance(x, str)) if isinstance(raw, (list, tuple)) else ()


def _pattern(raw: Any) -> re.Pattern[str] | None:
    return re.compile(raw) if isinstance(raw, str) and raw else None


def rule_of(row: Mapping[str, Any]) -> Rule:
    """The rule in that row. ValueError (also re.error) or KeyError say what is wrong."""
    role = str(row.get("role", "cause"))
    literals = tuple(x.lower() for x in _words(row.get("any")))
    if role not in ROLES or not literals:
        raise ValueError(f"rule {row.get('id')}: role {role!r}, {len(literals)} literals")
    by_phase = row.get("by_phase")
    return Rule(
        id=str(row["id"]),
        slug=str(row["slug"]),
        role=role,
        any=literals,
        match=_pattern(row.get("match")),
        unless=_pattern(row.get("unless")),
        where=frozenset(_words(row.get("where"))) or frozenset(("exception", "message", "line")),
        phases=_words(row.get("phases")),
        frames=_pattern(row.get("frames")),
        by_phase=dict(by_phase) if isinstance(by_phase, Mapping) else {},
        served=row["served"] if isinstance(row.get("served"), bool) else None,
        strength=int(row.get("strength", STRENGTH[role])),
        confidence=float(row.get("confidence", 0.9 if role == "cause" else 0.6)),
        fatal=str(row.get("fatal", "exit")),
        summary=str(row.get("summary", "")),
        remedies=tuple(x for x in row.get("remedies") or () if isinstance(x, Mapping)),
        rules_out=_words(row.get("rules_out")),
        about=_words(row.get("about")),
        cases=_words(row.get("cases")),
        family=str(row.get("family", "")),
    )


def anchor(literal: str) -> str:
    """The word by which a literal is looked up, '' where it has none of four letters."""
    words = WORD.findall(literal)
    rare = [w for w in words if w not in _PLAIN_WORDS]
    return max(rare or words, key=len, default="")


class Rules:
    """All rules with an index by word: a line that holds none of the words costs one look."""

    def __init__(self, rules: Iterable[Rule] = (), problems: Sequence[str] = ()) -> None:
        self.rules = tuple(rules)
        self.problems = tuple(problems)
        self._index: dict[str, list[tuple[str, int]]] = {}
        self._always: list[tuple[str, int]] = []
        for i, rule in enumerate(self.rules):
            for literal in rule.any:
                word = anchor(literal)
                (self._index.setdefault(word, []) if word else self._always).append((literal, i))
        self._keys = frozenset(self._index)
        self._untouched = self._keys.isdisjoint

    def __len__(self) -> int:
        return len(self.rules)

    def search(self, text: str) -> list[tuple[Rule, Mapping[str, str]]]:
        """As find, where words may be broken: two ranks wrote into one line. Slow: every literal is looked for."""
        low = text[:SPAN].lower()
        words = [word for word, rows in self._index.items() if any(literal in low for literal, _ in rows)]
        return self.find(text, low, words) if words else []

    def _order(self, i: int) -> tuple[bool, int]:
        return self.rules[i].role != "benign", i

    def words(self, low: str) -> list[str]:
        """The words of a line (lower case) where a rule could match it, [] where none can: the one look."""
        words = WORD.findall(low)
        return words if self._always or not self._untouched(words) else []

    def find(self, text: str, low: str = "", words: Sequence[str] = ()) -> list[tuple[Rule, Mapping[str, str]]]:
        """Rules whose literals and patterns fit, strongest first, with the named groups of their pattern."""
        text = text[:SPAN]
        low = low or text.lower()
        hits = {i for literal, i in self._always if literal in low} if self._always else set()
        for word in self._keys.intersection(words or WORD.findall(low)):
            for literal, i in self._index[word]:
                if i not in hits and literal in low:
                    hits.add(i)
        if not hits:
            return []
        out: list[tuple[Rule, Mapping[str, str]]] = []
        for i in sorted(hits, key=self._order):
            rule, groups = self.rules[i], {}
            if rule.match is not None:
                match = rule.match.search(text)
                if match is None:
                    continue
                groups = {k: v for k, v in match.groupdict().items() if v is not None}
            if rule.unless is None or rule.unless.search(text) is None:
                if rule.role == "benign":
                    return [(rule, groups)]
                out.append((rule, groups))
        out.sort(key=_strength)
        return out


def _strength(found: tuple[Rule, Mapping[str, str]]) -> int:
    return -found[0].strength


def rules_from_json(rows: Any) -> Rules:
    """The rules in those rows; of two with one id the later wins (an operator's own). Never raises."""
    kept: dict[str, Rule] = {}
    problems: list[str] = []
    for row in rows if isinstance(rows, (list, tuple)) else ():
        try:
            rule = rule_of(row)
        except (ValueError, KeyError, TypeError, AttributeError, re.error, RecursionError) as error:
            problems.append(f"{row.get('id') if isinstance(row, Mapping) else row!r}: {error}"[:300])
            continue
        kept.pop(rule.id, None)
        kept[rule.id] = rule
    return Rules(kept.values(), problems)
