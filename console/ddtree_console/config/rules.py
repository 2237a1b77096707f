"""Rules of findings from YAML, one file a family: read, checked, and turned into the plain rows that travel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ddtree_console
from ddtree_console.config import patterns, yamltree
from ddtree_console.config.yamltree import ConfigError, Document, Path_
from ddtree_console.domain.findings.rules import FATAL, PLACES, ROLES
from ddtree_console.domain.findings.slugs import SLUGS

BUILTIN = Path(ddtree_console.__file__).parent / "rules"
OPS = ("set", "remove", "raise", "lower")
TARGETS = ("flag", "env", "unit", "profile")
LONGEST = 2000
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,60}\Z")
_TEXT = ("summary",)
_LISTS = ("any", "where", "phases", "rules_out", "about", "cases")
_PATTERNS = ("match", "unless", "frames")
_KEYS = frozenset(
    (*_TEXT, *_LISTS, *_PATTERNS, "id", "slug", "role", "by_phase", "served", "strength", "confidence", "fatal")
) | {"remedies"}
_CONDITIONS = frozenset(("flag", "no_flag", "flag_is", "no_triton", "group", "no_group", "slug", "phase"))


class _Check:
    """The checks of one file; what is wrong goes into its document."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """The rules of the file; those with problems are left out."""
        data = self.document.data
        if not isinstance(data, dict):
            self.document.problem((), "a rule file is a mapping with `family` and `rules`")
            return []
        for key in data:
            if key not in ("family", "rules"):
                self.document.problem((key,), "unknown key; known: family, rules")
        family = data.get("family")
        if not isinstance(family, str) or not family:
            self.document.problem(("family",), "a name is wanted")
        rules = data.get("rules")
        if not isinstance(rules, list):
            self.document.problem(("rules",), "a list of rules is wanted")
            return []
        if self.document.problems:
            return []
        out, seen = [], set()
        for i, raw in enumerate(rules):
            before = len(self.document.problems)
            row = self._rule(raw, ("rules", i))
            if row.get("id") in seen:
                self.document.problem(("rules", i, "id"), f"{row['id']} stands twice in this file")
            seen.add(row.get("id"))
            if len(self.document.problems) == before:
                out.append({"family": str(family), **row})
        return out

    def _rule(self, raw: Any, at: Path_) -> dict[str, Any]:
        if not isinstance(raw, dict):
            self.document.problem(at, "a rule is a mapping")
            return {}
        for key in raw:
            if key not in _KEYS:
                self.document.problem((*at, key), f"unknown key; known: {', '.join(sorted(_KEYS))}")
        row: dict[str, Any] = dict(raw)
        self._words(raw, at)
        for key in _LISTS:
            if key in raw and not (isinstance(raw[key], list) and all(isinstance(x, str) and x for x in raw[key])):
                self.document.problem((*at, key), "a list of texts is wanted")
        if not raw.get("any"):
            self.document.problem((*at, "any"), "at least one literal is wanted")
        if "cases" not in raw:
            self.document.problem((*at, "cases"), "name the cases that justify the rule ([] for an operator's own)")
        for place in raw.get("where") or () if isinstance(raw.get("where"), list) else ():
            if place not in PLACES:
                self.document.problem((*at, "where"), f"{place!r} is none of {', '.join(PLACES)}")
        for key in _PATTERNS:
            self._pattern(raw, at, key)
        self._numbers(raw, at)
        row["remedies"] = [r for i, x in enumerate(self._list(raw, at)) for r in self._remedy(x, (*at, "remedies", i))]
        return row

    def _list(self, raw: Mapping[str, Any], at: Path_) -> list[Any]:
        rows = raw.get("remedies", [])
        if not isinstance(rows, list):
            self.document.problem((*at, "remedies"), "a list is wanted")
            return []
        return rows

    def _words(self, raw: Mapping[str, Any], at: Path_) -> None:
        if not isinstance(raw.get("id"), str) or _ID.match(raw["id"]) is None:
            self.document.problem((*at, "id"), "lower-case letters, digits and dashes are wanted")
        if raw.get("slug") not in SLUGS:
            self.document.problem((*at, "slug"), f"{raw.get('slug')!r} is no slug of the taxonomy, nor `unknown`")
        if raw.get("role", "cause") not in ROLES:
            self.document.problem((*at, "role"), f"{raw['role']!r} is none of {', '.join(ROLES)}")
        if raw.get("fatal", "exit") not in FATAL:
            self.document.problem((*at, "fatal"), f"{raw['fatal']!r} is none of {', '.join(FATAL)}")
        if not isinstance(raw.get("summary", ""), str):
            self.document.problem((*at, "summary"), "one sentence is wanted")
        by_phase = raw.get("by_phase", {})
        if not isinstance(by_phase, dict) or not all(x in SLUGS for x in by_phase.values()):
            self.document.problem((*at, "by_phase"), "a mapping of phase words to slugs is wanted")

    def _numbers(self, raw: Mapping[str, Any], at: Path_) -> None:
        strength, confidence = raw.get("strength", 50), raw.get("confidence", 0.5)
        if isinstance(strength, bool) or not isinstance(strength, int) or not 0 <= strength <= 100:
            self.document.problem((*at, "strength"), "a whole number from 0 to 100 is wanted")
        if isinstance(confidence, bool) or not isinstance(confidence, (int, float)) or not 0 <= confidence <= 1:
            self.document.problem((*at, "confidence"), "a number from 0 to 1 is wanted")
        if not isinstance(raw.get("served"), bool) and raw.get("served") is not None:
            self.document.problem((*at, "served"), "true or false is wanted")

    def _pattern(self, raw: Mapping[str, Any], at: Path_, key: str) -> None:
        text = raw.get(key)
        if text is None:
            return
        if not isinstance(text, str) or len(text) > LONGEST:
            self.document.problem((*at, key), "a regular expression is wanted")
            return
        try:
            re.compile(text)
        except re.error as error:
            self.document.problem((*at, key), f"no regular expression: {error}")

    def _remedy(self, raw: Any, at: Path_) -> Iterator[dict[str, Any]]:
        if not isinstance(raw, dict) or not isinstance(raw.get("text"), str):
            self.document.problem(at, "a remedy is a mapping with a `text`")
            return
        for key in raw:
            if key not in ("text", "edits", "do", "when"):
                self.document.problem((*at, key), "unknown key; known: text, edits, do, when")
        edits = raw.get("edits", [])
        if not isinstance(edits, list):
            self.document.problem((*at, "edits"), "a list is wanted")
            edits = []
        row: dict[str, Any] = {"text": raw["text"]}
        row["edits"] = [e for i, x in enumerate(edits) for e in self._edit(x, (*at, "edits", i))]
        if "do" in raw:
            row["command"] = str(raw["do"])
        when = raw.get("when")
        if when is not None:
            if not isinstance(when, dict) or set(when) - _CONDITIONS:
                self.document.problem((*at, "when"), f"a mapping of {', '.join(sorted(_CONDITIONS))} is wanted")
            else:
                row["if"] = dict(when)
        yield row

    def _edit(self, raw: Any, at: Path_) -> Iterator[dict[str, Any]]:
        if isinstance(raw, dict) and len(raw) == 2:
            target = next((k for k in raw if k in TARGETS), None)
            op = next((k for k in raw if k in OPS), None)
            if target is not None and op is not None and isinstance(raw[target], str):
                yield {"target": target, "name": raw[target], "op": op, "value": raw[op]}
                return
        self.document.problem(at, f"one of {', '.join(TARGETS)} and one of {', '.join(OPS)} are wanted")


def check(path: Path) -> tuple[list[dict[str, Any]], Document]:
    """The rules of a file, and its document with every problem."""
    document = yamltree.read(path, ours=path.parent == BUILTIN)
    if document.problems:
        return [], document
    rows = _Check(document).rows()
    # those that come with the program are tried by its tests
    return (rows if path.parent == BUILTIN or _tried(document) else []), document


def _tried(document: Document) -> bool:
    """False, with a problem, where a pattern would hold up every wait on an unlucky line."""
    data = document.data
    rows = data.get("rules") if isinstance(data, dict) else None
    found = [
        (("rules", i, key), raw[key])
        for i, raw in enumerate(rows if isinstance(rows, list) else ())
        for key in _PATTERNS
        if isinstance(raw, dict) and isinstance(raw.get(key), str) and len(raw[key]) <= LONGEST
    ]
    slow = patterns.endless([text for _, text in found])
    for i in slow:
        at, text = found[i]
        document.problem(at, f"takes too long on some lines (nested or repeated repetitions): {text[:60]}")
    return not slow


def files(folder: Path) -> list[Path]:
    """The rule files of a folder, in order; none where it does not exist."""
    return sorted(p for p in folder.glob("*.y*ml") if p.is_file())


def load_rules(user_folder: Path | None = None) -> list[dict[str, Any]]:
    """Builtin rules, then the operator's. ConfigError names every problem as file:line: key: reason."""
    rows: list[dict[str, Any]] = []
    problems = []
    for folder in (BUILTIN, user_folder):
        for path in files(folder) if folder is not None else ():
            found, document = check(path)
            rows += found
            problems += document.problems
    if problems:
        raise ConfigError(tuple(sorted(problems)))
    return rows
