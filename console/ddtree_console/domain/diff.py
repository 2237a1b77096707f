"""What differs between two profiles, field by field, and between two texts; secrets masked."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ddtree_console.domain.secrets import MASK, is_secret_name, mask, mask_flags
from ddtree_console.domain.spec import Profile, Secret, Speculative


@dataclass(frozen=True)
class FieldChange:
    """One change: old -> new as text ('' = absent).

    where: flag | env | unit | args | command | speculative | profile.
    """

    where: str
    name: str
    old: str
    new: str

    def line(self) -> str:
        """As history keeps it: `flag mem-fraction-static 0.88 -> 0.95`."""
        return f"{self.where} {self.name} {self.old or '(unset)'} -> {self.new or '(unset)'}"


def shown(value: Any) -> str:
    """A value as the operator writes it in YAML; '' for absent and for a flag that is off."""
    if value is None or value is False:
        return ""
    if value is True:
        return "true"
    if isinstance(value, Secret):
        return f"{{secret: {value.name}}}"
    if isinstance(value, (list, tuple)):
        return json.dumps(list(value), ensure_ascii=False)
    return str(value) if value != "" else '""'


def _masked(name: str, value: Any) -> str:
    text = shown(value)
    if isinstance(value, Secret):
        return text  # only the name of its entry on the host
    return MASK if text and is_secret_name(name) else mask(text)


def _mapping(where: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[FieldChange]:
    for name in {**old, **new}:
        before, after = shown(old.get(name)), shown(new.get(name))
        if before != after:
            yield FieldChange(where, name, _masked(name, old.get(name)), _masked(name, new.get(name)))


def _words(argv: tuple[str, ...]) -> str:
    return json.dumps(list(mask_flags(argv)), ensure_ascii=False) if argv else ""


def _intent(intent: Speculative | None) -> dict[str, Any]:
    given = intent or Speculative()
    return {"kind": given.kind, "shadow": given.shadow, "budget": given.budget, "draft": given.draft}


def diff_profiles(old: Profile, new: Profile) -> tuple[FieldChange, ...]:
    """Every difference of two profiles but their names, in a fixed order; an adopted unit's text is one field."""
    changes: list[FieldChange] = []
    for name in ("engine", "dialect", "python", "user", "workdir", "model"):
        changes += _mapping("profile", {name: getattr(old, name)}, {name: getattr(new, name)})
    changes += _mapping("flag", old.flags, new.flags)
    changes += _mapping("speculative", _intent(old.speculative), _intent(new.speculative))
    for where, before, after in (("args", old.args, new.args), ("command", old.command, new.command)):
        if tuple(before) != tuple(after):
            changes.append(FieldChange(where, where, _words(tuple(before)), _words(tuple(after))))
    changes += _mapping("env", old.env, new.env)
    changes += _mapping("unit", old.unit, new.unit)
    changes += _mapping("profile", {"must": tuple(old.must) or None}, {"must": tuple(new.must) or None})
    if (old.verbatim or "") != (new.verbatim or ""):
        count = [str(len(text.splitlines())) + " lines" if text else "" for text in (old.verbatim, new.verbatim)]
        if count[0] == count[1]:
            count[1] += ", changed"
        changes.append(FieldChange("unit", "verbatim", count[0], count[1]))
    return tuple(changes)


def unified(old: str, new: str, old_name: str = "on the host", new_name: str = "to deploy") -> tuple[str, ...]:
    """A unified diff of two texts, secrets masked, lines without line ends; () when they are the same.

    A last line without line end is marked as diff(1) does.
    """
    if old == new:
        return ()
    # masked before they are compared line by line, so that a secret that spans a cut is not shown half
    before, after = mask(old).splitlines(keepends=True), mask(new).splitlines(keepends=True)
    lines: list[str] = []
    for line in difflib.unified_diff(before, after, old_name, new_name):
        text = line.rstrip("\r\n")
        lines.append(text)
        if line[:1] in "+- " and line == text:
            lines.append("\\ No newline at end of file")
    return tuple(lines) or ("(only secret values differ)",)
