"""pydantic's errors as file:line problems that say what YAML read and what was wanted."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from ddtree_console.config import schema
from ddtree_console.config.yamltree import Document, Path_

_WANTED = {
    "bool_type": "true or false",
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_PATTERNS = {
    schema.NAME: "a name of letters, digits, `_`, `.`, `-`",
    schema.UNIT: "a unit name such as sglang-qwen.service",
}


def said(value: Any) -> str:
    """What YAML read, with its type."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        word = "true" if value else "false"
        plain = "yes, on, true" if value else "no, off, false"
        return f"{word} (YAML reads the plain words {plain} so; put the word in quotes to mean text)"
    if isinstance(value, str):
        hint = ""
        try:
            float(value)
            hint = " (YAML takes 1.0e-3 for a number, but 1e-3 for text)" if "e" in value.lower() else ""
        except ValueError:
            pass
        return f"the text {value[:80]!r}{hint}"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    return "a list" if isinstance(value, list) else "a mapping"


def nearest(name: str, known: Iterator[str] | list[str]) -> str:
    """` (did you mean x?)`, or ''."""
    found = difflib.get_close_matches(name, list(known), 1, 0.6)
    return f"; did you mean {found[0]}?" if found else ""


def _path(loc: tuple[str | int, ...], data: Any, absent: bool) -> tuple[Path_, bool, Any]:
    """(place in the data, whether the key itself is meant, value there): pydantic's loc also names union branches.

    absent: the last part of loc is a key that is missing.
    """
    path: Path_ = ()
    for i, part in enumerate(loc):
        if part == "[key]":
            return path, True, path[-1] if path else None
        known: Any = data if isinstance(data, Mapping) else range(len(data)) if isinstance(data, list) else ()
        if part in known:
            data, path = data[part], (*path, part)
        elif absent and i == len(loc) - 1:
            return (*path, part), False, None
    return path, False, data


def _fields(model: type[BaseModel], path: Path_) -> list[str]:
    """The keys that the model knows where `path` stands, for the nearest one."""
    inner: dict[str, type[BaseModel]] = {
        "services": schema.ServiceModel,
        "hosts": schema.HostModel,
        "speculative": schema.SpeculativeModel,
    }
    here: type[BaseModel] = model
    for part in path[:-1]:
        if isinstance(part, str) and part in inner and part in here.model_fields:
            here = inner[part]
        elif here is schema.ProfileModel and part == "env":
            here = schema.SecretModel
    return list(here.model_fields)


def _reason(kind: str, wanted: list[str], value: Any, error: Any, model: type[BaseModel], path: Path_) -> str:
    context = error.get("ctx") or {}
    if kind == "extra_forbidden":
        return f"unknown key{nearest(str(path[-1]), _fields(model, path))}"
    if kind == "missing":
        return "is missing"
    if wanted:
        choices = list(dict.fromkeys(wanted))
        if "a number" in choices and "a whole number" in choices:
            choices.remove("a whole number")
        return f"read {said(value)}, wanted {', '.join(choices[:-1])}{' or ' if len(choices) > 1 else ''}{choices[-1]}"
    if kind == "string_pattern_mismatch":
        pattern = str(context.get("pattern"))
        return f"read {said(value)}, wanted {_PATTERNS.get(pattern, f'what matches {pattern}')}"
    if kind == "literal_error":
        return f"read {said(value)}, wanted one of {context.get('expected')}"
    text = str(error["msg"])
    return f"read {said(value)}: {text[:1].lower()}{text[1:]}"


def check(model: type[BaseModel], document: Document) -> BaseModel | None:
    """The document as that model. What does not fit is noted in it and left out, so that the rest can be checked too;
    None where nothing is left. A document with problems must not be used further.
    """
    data = document.data
    if not isinstance(data, dict):
        if not document.problems:
            document.problem((), f"read {said(data)}, wanted a mapping of keys")
        return None
    data = copy.deepcopy(data)
    for round_ in range(5):
        try:
            return model.model_validate(data)
        except ValidationError as failed:
            errors = [(*_path(e["loc"], data, e["type"] == "missing"), e) for e in failed.errors(include_url=False)]
        if round_ == 0:
            _note(errors, model, document)
        for path, _, _, error in errors:
            _prune(data, path[:-1] if error["type"] == "missing" else path)
    return None


def _note(errors: list[tuple[Path_, bool, Any, Any]], model: type[BaseModel], document: Document) -> None:
    paths = {path for path, _, _, _ in errors}
    done: set[Path_] = set()
    for path, is_key, value, error in errors:
        deeper = any(len(other) > len(path) and other[: len(path)] == path for other in paths)
        if path in done or (deeper and error["type"] in _WANTED):
            continue
        done.add(path)
        kinds = [e["type"] for p, _, _, e in errors if p == path]
        wanted = [] if is_key else [_WANTED[kind] for kind in kinds if kind in _WANTED]
        document.problem(path, _reason(str(error["type"]), wanted, value, error, model, path))


def _prune(data: Any, path: Path_) -> None:
    """Takes away what stands at the path; of a list the whole list."""
    while path:
        holder = data
        for part in path[:-1]:
            holder = (
                holder[part] if part in (holder if isinstance(holder, dict) else range(len(holder or ()))) else None
            )
            if not isinstance(holder, (dict, list)):
                return
        if isinstance(holder, dict):
            holder.pop(path[-1], None)
            return
        path = path[:-1]
    if isinstance(data, dict):
        data.clear()
