"""JSON from a host -> frozen dataclasses, and profiles -> JSON. Odd values become defaults, never an error."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from ddtree_console.domain.spec import Profile, Secret

T = TypeVar("T")
_BAD = object()


_known_hints: dict[type, dict[str, Any]] = {}


def _hints(cls: type) -> dict[str, Any]:
    if cls not in _known_hints:
        _known_hints[cls] = typing.get_type_hints(cls)
    return _known_hints[cls]


def _coerce(hint: Any, value: Any) -> Any:
    """The value as that type, or _BAD."""
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return build(hint, value) if isinstance(value, Mapping) else _BAD
    if hint is bool or hint is str:
        return value if isinstance(value, hint) else _BAD
    if hint is int:
        return value if isinstance(value, int) and not isinstance(value, bool) else _BAD
    if hint is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return value if number and math.isfinite(value) else _BAD
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None if type(None) in args else _BAD
        return next((x for a in args if a is not type(None) and (x := _coerce(a, value)) is not _BAD), _BAD)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            return _BAD
        return tuple(x for v in value if (x := _coerce(args[0], v)) is not _BAD)
    if isinstance(value, Mapping):
        return {str(k): x for k, v in value.items() if (x := _coerce(args[1], v)) is not _BAD}
    return _BAD


def build(cls: type[T], raw: Mapping[str, Any], /, **fixed: Any) -> T:
    """A `cls` from JSON: unknown keys are ignored, odd values keep the default; `fixed` is taken as is."""
    hints, values = _hints(cls), dict(fixed)
    for name, hint in hints.items():
        if name in fixed or name not in raw:
            continue
        value = _coerce(hint, raw[name])
        if value is not _BAD:
            values[name] = value
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in values:
            values[field.name] = {int: 0, str: ""}.get(hints[field.name])
    return cls(**values)


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def profile_json(profile: Profile) -> dict[str, Any]:
    """The resolved profile as plain JSON, with secrets by name only."""
    raw = dataclasses.asdict(profile)
    raw["env"] = {k: {"secret": v.name} if isinstance(v, Secret) else v for k, v in profile.env.items()}
    return {k: v for k, v in raw.items() if v not in (None, {}, (), [])}


def profile_of(raw: Mapping[str, Any], name: str) -> Profile:
    """The profile in what `profile_json` made; odd values are left out."""
    env = {
        str(k): Secret(str(v["secret"])) if isinstance(v, dict) and "secret" in v else str(v)
        for k, v in mapping(raw.get("env")).items()
    }
    return build(Profile, {**raw, "env": {}, "name": name}, env=env)
