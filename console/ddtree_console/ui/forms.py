"""The launch editor's form without a screen: a profile as texts, and texts as a profile again. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ddtree_console.domain.build import Build
from ddtree_console.domain.build import flag as flag_of
from ddtree_console.domain.engines.base import FlagHelp
from ddtree_console.domain.secrets import MASK, is_secret_name, mask_flags
from ddtree_console.domain.spec import Profile, Secret, Speculative
from ddtree_console.domain.text import visible

KINDS = ("none", "linear", "ddtree")
EDITED = "-edited"
"""ends the name of a profile that was edited and deployed without being saved"""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SECRET = re.compile(r"\{secret: *([A-Za-z_][A-Za-z0-9_]*)\}\Z")
_TRUE, _FALSE = ("on", "true", "yes"), ("off", "false", "no")

SPECULATIVE = (
    FlagHelp("speculative kind", "choice", "none, linear or ddtree; the build's dialect turns it into flags"),
    FlagHelp("speculative shadow", "bool", "verify trees beside the linear decode, and use the linear result"),
    FlagHelp("speculative budget", "int", "tree nodes besides the root", 1, 1024),
    FlagHelp("speculative draft", "str", "path or hub name of the draft model"),
)
ENV = FlagHelp("environment", "env", "one NAME=value a line; {secret: NAME} takes it from the host's secrets file")
ARGS = FlagHelp("extra arguments", "args", "verbatim, after the flags, quoted as in a shell")


@dataclass(frozen=True)
class Built:
    """What the texts make. errors: field name -> reason; profile is None while there are any."""

    profile: Profile | None
    errors: Mapping[str, str]


def fields(
    flags: Sequence[FlagHelp], profile: Profile | None = None, build: Build | None = None, added: Sequence[str] = ()
) -> tuple[FlagHelp, ...]:
    """All fields of the form: the engine's, every other flag that the profile sets or that was `added`, then the rest.

    build: tells kind and help of the latter, where it is known.
    """
    known = {f.name for f in flags}
    others = [n for n in (*(profile.flags if profile is not None else ()), *added) if n not in known]
    more = [_of_build(n, profile.flags.get(n) if profile is not None else None, build) for n in dict.fromkeys(others)]
    return (*flags, *more, *SPECULATIVE, ARGS, ENV)


def _of_build(name: str, value: Any, build: Build | None) -> FlagHelp:
    """A flag that the engine's own list has not, as its build describes it, else as its value looks."""
    found = flag_of(build, name) if build is not None else None
    if isinstance(value, (list, tuple)):
        kind = "list"
    elif isinstance(value, bool):
        kind = "bool"
    else:
        kind = found.kind if found is not None and found.kind in ("int", "float", "bool", "list") else "str"
    text = found.help if found is not None else "not in the editor's own list; as the profile has it"
    if found is not None and found.choices:
        text = f"{text}; one of {', '.join(found.choices)}"
    return FlagHelp(name, kind, text)


def seconds(text: str) -> float | None:
    """Seconds from 0 to a day, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 86400 else None


def profile_name_error(name: str, taken: Sequence[str]) -> str:
    """Why that is no name for a new profile; '' when it is one."""
    if not _NAME.match(name):
        return "letters, digits, . _ - only, at most 64"
    return "a profile of this name exists" if name in taken else ""


def texts(profile: Profile, all_fields: Sequence[FlagHelp]) -> dict[str, str]:
    """The form's texts of a profile; secrets show as ***, controls as visible symbols."""
    spec = profile.speculative or Speculative()
    out = {
        "speculative kind": spec.kind,
        "speculative shadow": "on" if spec.shadow else "",
        "speculative budget": "" if spec.budget is None else str(spec.budget),
        "speculative draft": visible(spec.draft or ""),
        ENV.name: "\n".join(f"{k}={_env_text(k, v)}" for k, v in profile.env.items()),
        ARGS.name: visible(shlex.join(mask_flags(profile.args))),
    }
    for field in all_fields:
        if field.name not in out:
            out[field.name] = _flag_text(field.name, profile.flags.get(field.name))
    return out


def _flag_text(name: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    if value is True:
        return "on"
    if is_secret_name(name):
        return MASK
    return visible(shlex.join(str(v) for v in value) if isinstance(value, (list, tuple)) else str(value))


def _env_text(name: str, value: str | Secret) -> str:
    if isinstance(value, Secret):
        return f"{{secret: {value.name}}}"
    return MASK if is_secret_name(name) else visible(value)


def limits(field: FlagHelp) -> str:
    """0.1 to 1, at least 1, or ''."""
    low, high = field.low, field.high
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    if low is not None:
        return f"at least {low:g}"
    return "" if high is None else f"at most {high:g}"


def value_of(field: FlagHelp, text: str) -> Any:
    """The value of a flag's text, None for blank; ValueError says what is wrong."""
    text = text.strip()
    if not text:
        return None
    if "\0" in text or "\n" in text or "\r" in text:
        raise ValueError("no newline and no NUL in a value")
    if field.kind == "bool":
        if text.lower() in _TRUE:
            return True
        if text.lower() in _FALSE:
            return None
        raise ValueError("on or blank")
    if field.kind == "choice":
        if text in KINDS:
            return text
        raise ValueError("one of " + ", ".join(KINDS))
    if field.kind == "list":
        return [_scalar(word) for word in shlex.split(text)]
    if field.kind not in ("int", "float"):
        return text
    try:
        value: int | float = int(text) if field.kind == "int" else float(text)
    except ValueError:
        raise ValueError("a whole number" if field.kind == "int" else "a number") from None
    if not (
        value == value and (field.low is None or value >= field.low) and (field.high is None or value <= field.high)
    ):
        raise ValueError(limits(field) or "a finite number")
    return value


def _scalar(word: str) -> int | float | str:
    """A number where it is one."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def build(base: Profile, all_fields: Sequence[FlagHelp], entered: Mapping[str, str]) -> Built:
    """The profile that these texts make of `base`; what was not touched stays exactly as it was."""
    before, errors = texts(base, all_fields), {}
    values: dict[str, Any] = {}
    flags = dict(base.flags)
    for field in all_fields:
        text = entered.get(field.name, "")
        if text == before[field.name]:
            continue
        try:
            values[field.name] = _parse(field, text, base)
        except ValueError as error:
            errors[field.name] = str(error)
    if errors:
        return Built(None, errors)
    special = {f.name for f in (*SPECULATIVE, ENV, ARGS)}
    for name, value in values.items():
        if name in special:
            continue
        if value is None:
            flags.pop(name, None)
        else:
            flags[name] = value
    profile = replace(
        base,
        flags=flags,
        env=values.get(ENV.name, base.env),
        args=values.get(ARGS.name, base.args),
        speculative=_speculative(base.speculative, values),
    )
    return Built(profile, {})


def _speculative(old: Speculative | None, values: Mapping[str, Any]) -> Speculative | None:
    if not any(f.name in values for f in SPECULATIVE):
        return old
    spec = old or Speculative()
    return Speculative(
        kind=values.get("speculative kind", spec.kind) or "none",
        shadow=bool(values.get("speculative shadow", spec.shadow)),
        budget=values.get("speculative budget", spec.budget),
        draft=values.get("speculative draft", spec.draft),
    )


def _parse(field: FlagHelp, text: str, base: Profile) -> Any:
    if field.kind == "env":
        return _env(text, base)
    if field.kind == "args":
        args = tuple(shlex.split(text))
        if any(MASK in word for word in args):
            raise ValueError("*** stands for a secret: type it anew")
        return args
    if MASK in text:
        raise ValueError("*** stands for a secret: type it anew")
    return value_of(field, text)


def _env(text: str, base: Profile) -> dict[str, str | Secret]:
    out: dict[str, str | Secret] = {}
    for line in text.split("\n"):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        name = name.strip()
        if not equals or not _ENV_NAME.match(name):
            raise ValueError(f"{line.strip()[:40]!r} is not NAME=value")
        if "\0" in value:
            raise ValueError("no NUL in a value")
        secret = _SECRET.match(value.strip())
        if secret:
            out[name] = Secret(secret.group(1))
        elif value == MASK and name in base.env:
            out[name] = base.env[name]
        else:
            out[name] = value
    return out


def renamed(profile: Profile, base: str) -> Profile:
    """An edited profile under a name that says so; it extends what it was made from."""
    root = base.removesuffix(EDITED)
    return replace(profile, name=f"{root[: 64 - len(EDITED)]}{EDITED}", extends=root)
