"""Ways out as edits that this build has: the spelling of its release, computed values, and no advice in circles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ddtree_console.domain.findings import attempts as memory
from ddtree_console.domain.findings import wording
from ddtree_console.domain.findings.attempts import FRACTION, Attempted, number
from ddtree_console.domain.findings.rules import Rule
from ddtree_console.domain.findings.types import Edit, Finding, Remedy, Value

STEP, TOP, BOTTOM = 0.03, 0.95, 0.05
MANY = 60
"""a line of arguments with so many names shows the build's own flags."""
SPELLINGS: Mapping[str, tuple[tuple[str, Value], ...]] = {
    # what stops the prefill graph: 0.5.10-0.5.13, then 0.5.14 and later (FACTS B.2)
    "disable-piecewise-cuda-graph": (
        ("disable-prefill-cuda-graph", True),
        ("cuda-graph-backend-prefill", "disabled"),
        ("disable-piecewise-cuda-graph", True),
    ),
    "cuda-graph-max-bs": (("cuda-graph-max-bs-decode", None), ("cuda-graph-max-bs", None)),
    "mamba-scheduler-strategy": (("mamba-radix-cache-strategy", None), ("mamba-scheduler-strategy", None)),
    "mem-fraction-static": (("mem-fraction-static", None),),
}
_GENERAL: Mapping[str, Remedy] = {
    "unit-start-policy": Remedy(
        "Read the log of the first start; then reset the counter.", command="systemctl reset-failed UNIT"
    ),
    "native-crash": Remedy("Look at the innermost native frame.", command="coredumpctl info -1"),
    "host-memory-short": Remedy(
        "See what the kernel killed and why.", command="journalctl -k --grep 'oom|Killed process'"
    ),
}


def of_slug(slug: str) -> tuple[Remedy, ...]:
    """What can be said without a rule."""
    return (_GENERAL[slug],) if slug in _GENERAL else ()


class Maker:
    """Makes the remedies of one start. flags: what it was given, with the server's own resolved values on top."""

    def __init__(
        self,
        flags: Mapping[str, Any],
        build: frozenset[str] | None,
        attempts: Sequence[Attempted],
        edited: tuple[str, ...],
    ) -> None:
        self.flags, self.attempts, self._edited = flags, attempts, edited
        shown = frozenset(flags) if len(flags) >= MANY else None
        self._build = build if build is not None else shown

    @property
    def fraction(self) -> float | None:
        """The memory fraction of this start."""
        return number(self.flags.get(FRACTION))

    def values(self, groups: Mapping[str, str]) -> dict[str, str]:
        """What sentences may name: the rule's groups, and flags."""
        known = {
            k: str(v) for k, v in self.flags.items() if isinstance(v, (str, int, float)) and not isinstance(v, bool)
        }
        return {**known, **groups}

    # ---- spelling

    def has(self, name: str) -> bool:
        """Whether the build has that flag; True while nothing is known of the build."""
        return self._build is None or name in self._build or name in self.flags

    def spell(self, name: str, value: Value) -> tuple[str, Value] | None:
        """The flag as this build calls it, None where it has nothing of the kind."""
        ways = SPELLINGS.get(name)
        if ways is None:
            return (name, value) if self.has(name) else None
        if self._build is None:  # nothing known: the spelling that was asked for, unless the log shows a newer one
            shown = next((w for w in ways if w[0] in self.flags), None)
            way = shown or next((w for w in ways if w[0] == name), ways[-1])
        else:
            found = next((w for w in ways if w[0] in (self._build or ())), None)
            if found is None:
                return None
            way = found
        return way[0], (way[1] if way[1] is not None else value)

    # ---- remedies of a rule

    def make(self, rule: Rule, slug: str, groups: Mapping[str, str], phase: str, stuck: bool) -> tuple[Remedy, ...]:
        """The rule's remedies that apply here, in order."""
        groups = {**groups, **_derived(groups)}
        if "weights" in groups:  # the share that the weights took, by the log's own figures, is the least fraction
            groups.setdefault("minimum", groups["weights"])
        values = self.values(groups)
        out: list[Remedy] = []
        for row in rule.remedies:
            if not self._applies(row.get("if"), slug, groups, phase):
                continue
            remedy = self._one(row, values, stuck)
            if remedy is not None:
                out.append(remedy)
        return tuple(out)

    def _applies(self, condition: Any, slug: str, groups: Mapping[str, str], phase: str) -> bool:
        if not isinstance(condition, Mapping):
            return True
        flag, without, group = condition.get("flag"), condition.get("no_flag"), condition.get("group")
        absent = condition.get("no_group")
        if absent is not None and groups.get(str(absent)):
            return False
        if flag is not None and not self.flags.get(str(flag)):
            return False
        if without is not None and self.flags.get(str(without)):
            return False
        if group is not None and not groups.get(str(group)):
            return False
        if condition.get("slug") not in (None, slug):
            return False
        equal = str(condition.get("flag_is") or "")
        if equal and str(self.flags.get(equal.partition("=")[0])) != equal.partition("=")[2]:
            return False
        if condition.get("no_triton") and self.flags.get("attention-backend") == "triton":
            return False
        wanted = condition.get("phase")
        return wanted is None or str(wanted) in phase

    def _one(self, row: Mapping[str, Any], values: Mapping[str, str], stuck: bool) -> Remedy | None:
        edits: list[Edit] = []
        rows = row.get("edits") or ()
        for raw in rows if isinstance(rows, (list, tuple)) else ():
            edit = self._edit(raw, values, stuck) if isinstance(raw, Mapping) else None
            if edit is None:
                return None
            edits.append(edit)
        text = str(row.get("text", ""))
        command = str(row.get("command", ""))
        if command and not wording.complete(command, values):
            command = ""
        text = wording.fill(text, values)
        for edit in edits:
            if edit.target == "flag" and edit.value is not None and edit.op in ("raise", "lower"):
                text = _bounded(edit, values.get(edit.name, ""))
                break
        return Remedy(text, tuple(edits), wording.fill(command, values))

    def _edit(self, raw: Mapping[str, Any], values: Mapping[str, str], stuck: bool) -> Edit | None:
        target, name, op = str(raw.get("target", "flag")), str(raw.get("name", "")), str(raw.get("op", "set"))
        named = "{" in name
        name = wording.fill(name, values).lstrip("-") if target == "flag" else wording.fill(name, values)
        value: Value = raw.get("value")
        if isinstance(value, str):
            if not wording.complete(value, values) and op == "set":
                return None
            value = _typed(wording.fill(value, values)) if wording.complete(value, values) else None
        if target != "flag":
            return Edit(target, name, op, value)
        if name == FRACTION and op in ("raise", "lower"):
            return self._fraction(op, number(value), stuck)
        if op == "remove":
            return Edit(target, name, op) if named or name in self.flags or self._build is None else None
        spelt = self.spell(name, value)
        if spelt is None:
            return None
        if op == "lower" and value is None:
            current = number(self.flags.get(spelt[0]))
            return Edit(target, spelt[0], op, _halved(current))
        return Edit(target, spelt[0], op, spelt[1])

    def _fraction(self, op: str, named: float | None, stuck: bool) -> Edit | None:
        """Which fraction: what was computed, else between what was refused; None where that was tried."""
        now, low, high = self.fraction, memory.refused_low(self.attempts), memory.refused_high(self.attempts)
        if stuck or not self.has(FRACTION):
            return None
        if op == "raise":
            if now is not None and now >= TOP and named is None:
                return None
            if high is not None and now is not None and high > now:
                return Edit("flag", FRACTION, op, round((now + high) / 2, 3)) if high - now >= memory.ROOM else None
            if now is None and low is not None and high is not None:  # this start's own fraction is not known
                return Edit("flag", FRACTION, op, round((low + high) / 2, 3)) if high - low >= memory.ROOM else None
            if named is not None:
                above = math.floor(named * 100 + 1) / 100  # the program says `above`: the next hundredth
                if above >= 1:
                    return None
                if now is None or above > now:
                    return Edit("flag", FRACTION, op, above)
            return Edit("flag", FRACTION, op)
        if now is None:
            return Edit("flag", FRACTION, op)
        if now <= BOTTOM:
            return None
        if low is not None and low < now:
            return Edit("flag", FRACTION, op, round((now + low) / 2, 3)) if now - low >= memory.ROOM else None
        return Edit("flag", FRACTION, op, round(now - STEP, 3))

    # ---- blame

    def blamed(self, found: Finding, rule: Rule, groups: Mapping[str, str]) -> Finding:
        """Names the flag edited last, where it is what the cause is about."""
        if self.attempts and self.attempts[-1].slug == found.slug:
            return found  # it failed so before the edit
        about = {*rule.about, *(groups.get(name, "").lstrip("-") for name in ("flag", "flag2", "flag3"))}
        about |= {edit.name for remedy in found.remedies for edit in remedy.edits if edit.target == "flag"}
        hit = next((name for name in self._edited if name in about), "")
        return replace(found, blames=hit) if hit else found


_UNITS = {"K": 1.0, "M": 1024.0, "G": 1024.0**2, "T": 1024.0**3}


def _size(text: str) -> float:
    value = number(text.partition(" ")[0]) or 0.0
    return value * _UNITS.get(text.partition(" ")[2][:1], 0.0)


def _derived(groups: Mapping[str, str]) -> dict[str, str]:
    """`enough` where more was free than was wanted: then no flag is the way out."""
    wanted, free = _size(groups.get("wanted", "")), _size(groups.get("free", ""))
    return {"enough": "yes"} if 0 < wanted < free else {}


def _typed(text: str) -> Value:
    value = number(text)
    if value is None:
        return text
    return int(value) if value.is_integer() and "." not in text else value


def _halved(current: float | None) -> Value:
    return max(1, int(current) // 2) if current is not None and current >= 2 else None


def _bounded(edit: Edit, now: str) -> str:
    bound = "at least" if edit.op == "raise" else "at most"
    return f"{edit.op.capitalize()} --{edit.name}{f' from {now}' if now else ''} to {bound} {edit.value}."
