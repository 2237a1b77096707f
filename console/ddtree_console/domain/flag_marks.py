"""What a build makes of the flags of a launch, said before it is deployed. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ddtree_console.domain.build import Build, BuildFlag, FlagMark, flag
from ddtree_console.domain.engines import sglang_graphs, sglang_renames
from ddtree_console.domain.secrets import is_secret_name

_WHOLE = re.compile(r"\s*[+-]?\d+(_\d+)*\s*\Z")
_SIZE = re.compile(r"[+-]?\d+(\.\d+)?[kKmMgGtT]?i?\Z")
NEAR = 0.75
"""likeness from which another name is offered as the one that was meant."""


def launch(flags: Mapping[str, Any], args: Sequence[str]) -> list[tuple[str, Any]]:
    """(dash name, value) of each option of the launch, in order: flags that are set, then those among the arguments.

    value: True for a bare flag, a text or number, or a list of them.
    """
    found = [(name, value) for name, value in flags.items() if value is not False and value is not None]
    words = list(args)
    while words:
        word = words.pop(0)
        if word == "--":
            break
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        if equals:
            found.append((name, value))
            continue
        values: list[str] = []
        while words and not (words[0].startswith("-") and not _number(words[0])):
            values.append(words.pop(0))
        found.append((name, True if not values else values[0] if len(values) == 1 else values))
    return found


def _number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def marks(profile_flags: Mapping[str, Any], args: Sequence[str], build: Build) -> tuple[FlagMark, ...]:
    """One mark for each option of the launch, in order; a name that stands there twice is marked once."""
    options = launch(profile_flags, args)
    if build.source == "none":
        why = next(
            (p for p in build.problems if "flags" in p), next(iter(build.problems), "the build was not inspected")
        )
        return tuple(FlagMark(name, "not-known", "", why) for name in dict.fromkeys(n for n, _ in options))
    taken = {taker.name: name for name, _ in options if (taker := _taker(build, name)) is not None}
    values = {key: _shown(value) for name, value in options if (key := _key(build, name)) for value in [value]}
    found: dict[str, FlagMark] = {}
    for name, value in options:
        mark = _mark(build, name, value, taken, values)
        if name not in found or found[name].state == "ok":
            found[name] = mark
    return tuple(found.values())


def _key(build: Build, name: str) -> str:
    taker = _taker(build, name)
    return taker.name if taker is not None else name


def _spellings(build: Build) -> dict[str, BuildFlag]:
    """Every spelling that the parser knows -> its flag."""
    return {name: one for one in build.flags for name in (one.name, *one.aliases) if not name.startswith("-")}


def _taker(build: Build, name: str) -> BuildFlag | None:
    """The flag that takes that spelling, as argparse finds it: whole, or the only one that begins so."""
    exact = flag(build, name)
    if exact is not None:
        return exact
    spellings = _spellings(build)
    near = [s for s in spellings if s.startswith(name)]
    return spellings[near[0]] if len(near) == 1 and build.source == "ast" else None


def _mark(build: Build, name: str, value: Any, taken: Mapping[str, str], values: dict[str, str]) -> FlagMark:
    taker = flag(build, name)
    if taker is None:
        return _not_there(build, name, value, taken, values)
    if taker.refused:
        return FlagMark(name, "removed", _wanted(build, taker), taker.deprecated)
    bad = _bad_value(taker, name, value)
    if bad:
        return FlagMark(name, "bad-value", "", bad)
    state, add, text = (
        sglang_graphs.says(build, taker.name, list(taken), values) if build.engine == "sglang" else ("", "", "")
    )
    if state == "partial":
        return FlagMark(name, state, add, text)
    if taker.deprecated or state == "deprecated":
        said = "; ".join(x for x in (text, taker.deprecated) if x)
        return FlagMark(name, "deprecated", _wanted(build, taker), said)
    return FlagMark(name, "ok", "", text)


def _wanted(build: Build, old: BuildFlag) -> str:
    """What the build wants instead of a retired flag: its own word where that is an option, else the known one."""
    named = old.instead.partition("=")[0].partition(" ")[0]
    if named and "{" not in named and flag(build, named) is not None:
        return old.instead.partition(" ")[0] if "<" in old.instead else old.instead
    return next((new for new in sglang_renames.RENAMED.get(old.name, ()) if _has(build, new)), "")


def _has(build: Build, spelling: str) -> bool:
    """Whether the build has every option of `a=b --c`."""
    return all(flag(build, word.lstrip("-").partition("=")[0]) is not None for word in spelling.split())


def _not_there(build: Build, name: str, value: Any, taken: Mapping[str, str], values: dict[str, str]) -> FlagMark:
    """A name that the build has not: a prefix, an old or a newer name, or nothing that is known."""
    spellings = _spellings(build)
    starts = sorted(s for s in spellings if s.startswith(name)) if build.source == "ast" else []
    renamed = next((new for new in sglang_renames.RENAMED.get(name, ()) if _has(build, new)), "")
    if len(starts) == 1:
        whole = starts[0]
        mark = _mark(build, whole, value, taken, values)
        text = f"taken as --{whole}, the only option that begins so" + (f"; {mark.text}" if mark.text else "")
        return FlagMark(name, mark.state, mark.wanted or (whole if mark.state == "ok" else ""), text)
    if len(starts) > 1:
        could = ", ".join(f"--{s}" for s in starts[:6]) + (f" and {len(starts) - 6} more" if len(starts) > 6 else "")
        best = renamed if renamed and renamed.partition("=")[0] in starts else ""
        return FlagMark(name, "ambiguous", best, f"ambiguous: it could be {could}; the server ends with exit 2")
    came, gone = sglang_renames.life(name, build.release) if build.engine == "sglang" else ("", "")
    when = f"it came with {came}" if came else f"it is gone since {gone}" if gone else ""
    ends = f"{build.release or 'this build'} has no --{name}: the server ends with exit 2"
    text = "; ".join(x for x in (ends, when) if x)
    if build.source == "help":
        text = f"--help does not name --{name}"
    if renamed:
        return FlagMark(name, "renamed", renamed, text)
    if gone:
        return FlagMark(name, "removed", "", text)
    if came:
        return FlagMark(name, "unknown", "", text)
    close = [c for c in difflib.get_close_matches(name, list(spellings), 3, NEAR) if not _opposite(name, c)]
    if close:
        text += f"; nearest: {', '.join('--' + c for c in close)}"
    return FlagMark(name, "unknown", close[0] if close else "", text)


def _opposite(name: str, other: str) -> bool:
    """Whether one turns off what the other turns on."""
    off = ("disable-", "no-")
    return name.startswith(off) != other.startswith(off)


def _bad_value(taker: BuildFlag, name: str, value: Any) -> str:
    """Why argparse would not take that value, '' where it would or where that is not known. No secret is repeated."""
    if taker.kind == "bool":
        if value is True:
            return ""
        return f"--{name} takes no value, and {_told(name, value)} is given"
    if value is True:
        return f"--{name} wants a value" if taker.kind in ("int", "float", "str", "list", "size") else ""
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(items) > 1 and taker.kind in ("int", "float", "str", "size"):
        return f"--{name} takes one value, and {len(items)} are given"
    kind = taker.items if taker.kind == "list" else taker.kind
    for item in items:
        text = str(item)
        if taker.choices and text not in taker.choices:
            near = difflib.get_close_matches(text, list(taker.choices), 1, 0.6)
            some = ", ".join(taker.choices[:12]) + (", ..." if len(taker.choices) > 12 else "")
            return f"{_told(name, item)} is none of {some}" + (f"; nearest: {near[0]}" if near else "")
        if (kind == "int" and not _WHOLE.match(text)) or (kind == "size" and not _SIZE.match(text)):
            return f"{_told(name, item)} is no whole number"
        if kind == "float" and not _number(text):
            return f"{_told(name, item)} is no number"
    return ""


def _told(name: str, value: Any) -> str:
    return "the value" if is_secret_name(name) else repr(value)


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else "" if value is True else str(value)
