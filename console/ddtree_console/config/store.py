"""Profiles on disk: read, and saved as children that hold only what differs. Other files keep every byte."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddtree_console.config import checks, load, schema, validate, yamltree
from ddtree_console.config.files import dump, write_atomic
from ddtree_console.config.insert import add_service, snippet
from ddtree_console.config.resolve import Source
from ddtree_console.domain.spec import Profile, Secret, Speculative

__all__ = ["ProfileStore", "add_service", "difference", "snippet", "whole"]

HEADER = "# yaml-language-server: $schema=./schema.json\n"
_SCALARS = ("engine", "dialect", "python", "user", "workdir", "model", "verbatim")
_LISTS = ("args", "must", "command")


def _env(value: str | Secret) -> Any:
    return {"secret": value.name} if isinstance(value, Secret) else value


def _intent(intent: Speculative) -> dict[str, Any]:
    given: dict[str, Any] = {"kind": intent.kind}
    given.update({"shadow": True} if intent.shadow else {})
    given.update({k: v for k, v in (("budget", intent.budget), ("draft", intent.draft)) if v is not None})
    return given


def _on(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in flags.items() if v is not False and v is not None}


def difference(base: Profile, profile: Profile) -> dict[str, Any] | None:
    """The keys of a file that turns `base` into `profile`; None where it cannot be said as a difference."""
    out: dict[str, Any] = {"extends": base.name}
    for name in _SCALARS:
        if getattr(base, name) != getattr(profile, name):
            out[name] = getattr(profile, name)
    old, new = _on(base.flags), _on(profile.flags)
    flags = {k: v for k, v in new.items() if k not in old or old[k] != v or type(old[k]) is not type(v)}
    flags.update({k: False for k in old if k not in new})
    env = {k: _env(v) for k, v in profile.env.items() if base.env.get(k) != v}
    env.update({k: None for k in base.env if k not in profile.env})
    if any(key not in profile.unit for key in base.unit):
        return None
    unit = {k: v for k, v in profile.unit.items() if k not in base.unit or base.unit[k] != v}
    for name in _LISTS:
        if tuple(getattr(base, name)) != tuple(getattr(profile, name)):
            out[name] = list(getattr(profile, name))
    if base.speculative != profile.speculative:
        intent = profile.speculative
        out["speculative"] = None if intent is None else {
            "kind": intent.kind, "shadow": intent.shadow, "budget": intent.budget, "draft": intent.draft,
        }  # fmt: skip
    for name, changed in (("flags", flags), ("env", env), ("unit", _plain(unit))):
        if changed:
            out[name] = changed
    return out


def _plain(unit: Mapping[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in unit.items()}


def whole(profile: Profile) -> dict[str, Any]:
    """All keys of a profile that are set, for a file without `extends`."""
    out: dict[str, Any] = {"engine": profile.engine}
    out.update({k: getattr(profile, k) for k in _SCALARS[1:-1] if getattr(profile, k) is not None})
    out.update({k: list(getattr(profile, k)) for k in _LISTS if getattr(profile, k)})
    parts = (("flags", _on(profile.flags)), ("env", {k: _env(v) for k, v in profile.env.items()}))
    out.update({k: v for k, v in (*parts, ("unit", _plain(profile.unit))) if v})
    if profile.speculative is not None:
        out["speculative"] = _intent(profile.speculative)
    if profile.verbatim is not None:
        out["verbatim"] = profile.verbatim
    return out


class ProfileStore:
    """The profiles of one folder, beside a fleet file."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def profiles(self) -> dict[str, Profile]:
        """All of them, `extends` resolved; ConfigError."""
        return load.load_profiles(self.folder)

    def save(self, base: str, name: str, profile: Profile, *, overwrite: bool = False) -> Path:
        """Writes `name`, extending `base` ('' for none) with what differs.

        ValueError for a bad name or a profile that would extend itself; FileExistsError for one that is there, unless
        `overwrite`; KeyError for a missing base; ConfigError for what the schema refuses.
        """
        if not re.fullmatch(schema.NAME, name) or f"{name}.yaml" == load.FLEET:
            raise ValueError(f"profile name {name!r}: wanted letters, digits, `_`, `.`, `-`")
        path = self.folder / f"{name}.yaml"
        there = self.profiles() if self.folder.is_dir() else {}
        if name in there and not overwrite:
            raise FileExistsError(f"profile {name!r} exists already: {path}")
        if base and base not in there:
            raise KeyError(f"no profile {base!r} in {self.folder}")
        at: str | None = base
        while at:
            if at == name:
                raise ValueError(f"profile {name!r} cannot extend itself (through {base!r})")
            at = there[at].extends
        data = difference(there[base], profile) if base else None
        text = HEADER + dump(whole(profile) if data is None else data)
        self._check(text, path)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)
        return path

    def _check(self, text: str, path: Path) -> None:
        """A file that would not load again must not be written."""
        document = yamltree.parse(text, str(path))
        model = validate.check(schema.ProfileModel, document)
        checks.check_text(document)
        if isinstance(model, schema.ProfileModel):
            checks.check_profile(Source(path.stem, document, model))
        if document.problems:
            raise load.ConfigError(tuple(document.problems))
