"""A remedy made on a profile. Where no value was computed, the next sensible step is taken, and called a guess."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Union

from ddtree_console.domain.findings.types import Edit, Remedy
from ddtree_console.domain.spec import Profile, Speculative

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,79}\Z")
LONGEST = 4096
"""characters of a value"""
STEP = 0.05
"""one step of a share of memory"""
LEAST, MOST = 0.05, 0.95
"""shares that a guess stays within; beyond them another lever is wanted"""
LARGEST = 1e15
"""no setting is that large; it also keeps NaN, infinities and texts of a thousand digits out"""
WIDTH_FLAG, BUDGET_FLAG = "speculative-num-draft-tokens", "speculative-ddtree-budget"
DRAFT_FLAGS = ("speculative-draft-model-path", "speculative-draft-model")
DEFAULTS = {"tp-size": 1}
"""what every release of SGLang takes where the flag is not given; others depend on host and release"""
FIELDS = ("model", "python", "user", "workdir", "dialect")

Number = Union[int, float]


@dataclass(frozen=True)
class Applied:
    """profile: with the edits made. guesses: one line for each value that nobody computed.

    problems: one line for each edit that could not be made, and why; such a profile needs the operator's hand.
    """

    profile: Profile
    guesses: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class _CannotMake(ValueError):
    """Why an edit cannot be made."""


def apply(profile: Profile, remedy: Remedy) -> Profile:
    """The profile with what could be made of the remedy's edits; `make` also says what was guessed or left out."""
    return make(profile, remedy).profile


def make(profile: Profile, remedy: Remedy, defaults: Mapping[str, Any] | None = None) -> Applied:
    """As apply. defaults: what the build takes for flags that the profile does not set (dash names)."""
    guesses: list[str] = []
    problems: list[str] = []
    for edit in remedy.edits:
        name = _dashed(edit.name) if edit.target == "flag" else edit.name
        try:
            profile, guess = _one(profile, edit, name, defaults or {})
        except _CannotMake as why:
            # A name that is none may hold anything, a secret too: it is not repeated.
            problems.append(f"{edit.op[:20]} {name}: {why}" if _NAME.match(name) else str(why))
            continue
        if guess:
            guesses.append(guess)
    return Applied(profile, tuple(guesses), tuple(problems))


def _dashed(name: str) -> str:
    return name.lstrip("-").replace("_", "-")


def _one(profile: Profile, edit: Edit, name: str, defaults: Mapping[str, Any]) -> tuple[Profile, str]:
    if profile.verbatim is not None:
        raise _CannotMake("this unit was adopted word for word; edit it on its host, or write a profile for it")
    if not _NAME.match(name):
        # A rule may take words from a log: what could not be typed into a profile is not taken into one.
        raise _CannotMake("the remedy names nothing" if not name else "that is no name of a setting")
    if isinstance(edit.value, str) and not (edit.value.isprintable() and len(edit.value) <= LONGEST):
        raise _CannotMake("its value is too long, or not printable")
    if edit.target == "flag":
        return _flag(profile, edit, name, defaults)
    if edit.target == "env":
        value, guess = _value(edit, profile.env.get(name), None)
        env = {k: v for k, v in profile.env.items() if k != name}
        if value is not None:
            env = {**dict(profile.env), name: str(value)}
        return replace(profile, env=env), guess
    if edit.target == "unit":
        value, guess = _value(edit, profile.unit.get(name), None)
        unit = {k: v for k, v in profile.unit.items() if k != name}
        if value is not None:
            unit = {**dict(profile.unit), name: value}
        return replace(profile, unit=unit), guess
    if edit.target == "profile":
        return _field(profile, edit, name)
    raise _CannotMake("it is neither flag, env, unit nor profile")


def _field(profile: Profile, edit: Edit, name: str) -> tuple[Profile, str]:
    part, _, leaf = name.partition(".")
    if part == "speculative":
        intent = profile.speculative or Speculative()
        if not leaf and edit.op == "remove":
            return replace(profile, speculative=None), ""
        if leaf not in ("kind", "shadow", "budget", "draft"):
            raise _CannotMake("a profile has no such entry")
        value, guess = _value(edit, getattr(intent, leaf), None)
        if leaf == "kind":
            value = "none" if value is None else str(value)
        elif leaf == "shadow":
            value = bool(value)
        elif leaf == "budget" and value is not None and (type(value) is not int or value < 1):
            raise _CannotMake(f"a budget is a whole number from 1, not {value}")
        elif leaf == "draft" and value is not None:
            value = str(value)
        return replace(profile, speculative=replace(intent, **{leaf: value})), guess
    if name not in FIELDS:
        raise _CannotMake("a profile has no such entry")
    value, guess = _value(edit, getattr(profile, name), None)
    change: dict[str, Any] = {name: None if value is None else str(value)}
    return replace(profile, **change), guess


def _flag(profile: Profile, edit: Edit, name: str, defaults: Mapping[str, Any]) -> tuple[Profile, str]:
    # What the intent spells belongs to it: the flag beside it would stand twice on the command line.
    intent = profile.speculative
    if intent is not None and intent.kind != "none" and name not in profile.flags and _at(profile.args, name) is None:
        if name in DRAFT_FLAGS and edit.op == "set":
            return _field(profile, replace(edit, name="speculative.draft"), "speculative.draft")
        if name in (WIDTH_FLAG, BUDGET_FLAG) and intent.budget is not None:
            less = 1 if name == WIDTH_FLAG else 0
            value, guess = _value(edit, intent.budget + less, None)
            if value is not None and (not isinstance(value, int) or value - less < 1):
                raise _CannotMake(f"{value} leaves no tree")
            budget = None if value is None else value - less
            return replace(profile, speculative=replace(intent, budget=budget)), guess
    if _at(profile.command, name) is not None:
        raise _CannotMake("it stands in the profile's own command: change it there")
    at = _at(profile.args, name)
    now = _word(profile.args, at) if at is not None else profile.flags.get(name)
    value, guess = _value(edit, now, defaults.get(name, DEFAULTS.get(name)), switch=True)
    if at is not None:
        return replace(profile, args=_rewritten(profile.args, at, name, value)), guess
    flags = {k: v for k, v in profile.flags.items() if k != name}
    if value is not None and value is not False:
        flags = {**dict(profile.flags), name: value}
    return replace(profile, flags=flags), guess


def _at(words: tuple[str, ...], name: str) -> int | None:
    """Index of the last --name or --name=value, which is the one that counts."""
    option = f"--{name}"
    return next((i for i in range(len(words) - 1, -1, -1) if words[i].split("=", 1)[0] == option), None)


def _word(words: tuple[str, ...], at: int) -> Any:
    """The value of the option there; True for a bare one."""
    _, equals, value = words[at].partition("=")
    if equals:
        return value
    after = words[at + 1] if at + 1 < len(words) else "--"
    return True if after.startswith("--") else after


def _rewritten(words: tuple[str, ...], at: int, name: str, value: Any) -> tuple[str, ...]:
    bare = "=" not in words[at] and _word(words, at) is True
    end = at + (1 if bare or "=" in words[at] else 2)
    new = () if value is None or value is False else ((f"--{name}",) if value is True else (f"--{name}", str(value)))
    return (*words[:at], *new, *words[end:])


def _value(edit: Edit, now: Any, default: Any, switch: bool = False) -> tuple[Any, str]:
    """(new value or None for absent, what was guessed)."""
    if edit.op == "remove":
        return None, ""
    if edit.op == "set":
        if edit.value is None and not switch:
            raise _CannotMake("the finding names no value")
        return (True if edit.value is None else edit.value), ""
    if edit.op not in ("raise", "lower"):
        raise _CannotMake("not a change that is known")
    up = edit.op == "raise"
    have = _number(now)
    if edit.value is not None:
        limit = _number(edit.value)
        if limit is None:
            raise _CannotMake(f"{str(edit.value)[:40]!r} is no number")
        if have is not None and (have >= limit if up else have <= limit):
            raise _CannotMake(f"it is {have:g} already, and at {'least' if up else 'most'} {limit:g} was asked")
        return limit, ""
    start = have if have is not None else _number(default)
    if start is None:
        raise _CannotMake("it is not set here and what the build takes is not known: choose a value")
    value = _next(start, up)
    if value == start:
        raise _CannotMake(f"it is {start:g}, as far as a step goes: take the next remedy")
    how = f"{STEP:g} {'more' if up else 'less'} than" if 0 < start < 1 else ("twice" if up else "half")
    return value, f"{edit.name} {value:g} is a guess ({how} {start:g}): nothing computed it"


def _next(start: Number, up: bool) -> Number:
    """One step: 0.05 for a share, else twice or half."""
    if 0 < start < 1:
        moved = round(start + (STEP if up else -STEP), 3)
        return max(start, min(MOST, moved)) if up else min(start, max(LEAST, moved))
    whole = isinstance(start, int) or start == int(start)
    if not whole:
        return start * 2 if up else start / 2
    return int(start) * 2 if up else max(min(1, int(start)), int(start) // 2)


def _number(value: Any) -> Number | None:
    """The number in it, whole where it is one; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        number: Number = value
    else:
        try:
            number = float(str(value))
        except ValueError:
            return None
    if not -LARGEST < number < LARGEST:
        return None
    return int(number) if number == int(number) and abs(number) >= 1 else number
