"""Profiles with `extends` resolved: parent first, then what the child says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ddtree_console.config.schema import ProfileModel, SecretModel, SpeculativeModel
from ddtree_console.config.validate import nearest
from ddtree_console.config.yamltree import Document
from ddtree_console.domain.spec import Profile, Secret, Speculative

SCALARS = ("engine", "dialect", "python", "user", "workdir", "model", "verbatim")
LISTS = ("args", "must", "command")


@dataclass
class Source:
    """A profile as its file has it; model None where the file has problems."""

    name: str
    document: Document
    model: ProfileModel | None
    profile: Profile | None = None
    tried: bool = field(default=False)


def _text(source: Source, path: tuple[str | int, ...], value: Any) -> str:
    """A number as it is written in the file: 1.10 stays 1.10."""
    return value if isinstance(value, str) else source.document.raw.get(path, str(value))


def _speculative(parent: Speculative | None, said: SpeculativeModel) -> Speculative:
    """The parent's intent with what the child says; another kind starts anew but for the draft model."""
    base = parent or Speculative()
    if said.kind is not None and said.kind != base.kind:
        base = Speculative(said.kind, draft=base.draft)
    given = said.model_fields_set
    return Speculative(
        kind=base.kind,
        shadow=bool(said.shadow) if "shadow" in given else base.shadow,
        budget=said.budget if "budget" in given else base.budget,
        draft=said.draft if "draft" in given else base.draft,
    )


def merge(parent: Profile, source: Source, model: ProfileModel) -> Profile:
    """parent overlaid with the file's keys; an explicit null takes a key back to unset."""
    given = model.model_fields_set
    changes: dict[str, Any] = {"name": source.name, "extends": model.extends}
    for name in SCALARS:
        if name in given:
            changes[name] = getattr(model, name) or ("sglang" if name == "engine" else None)
    if "verbatim" in given:
        changes["verbatim"] = model.verbatim
    for name in LISTS:
        if name in given:
            items = getattr(model, name) or ()
            changes[name] = tuple(_text(source, (name, i), item) for i, item in enumerate(items))
    if "flags" in given:
        flags = {**parent.flags, **(model.flags or {})}
        changes["flags"] = {k: v for k, v in flags.items() if v is not False}
    if "env" in given:
        env: dict[str, str | Secret] = dict(parent.env)
        for key, value in (model.env or {}).items():
            if value is None:
                env.pop(key, None)
            else:
                env[key] = (
                    Secret(value.secret) if isinstance(value, SecretModel) else _text(source, ("env", key), value)
                )
        changes["env"] = env
    if "unit" in given:
        own = {k: _directive(source, ("unit", k), v) for k, v in (model.unit or {}).items()}
        changes["unit"] = {**parent.unit, **own}
    if "speculative" in given:
        said = model.speculative
        changes["speculative"] = None if said is None else _speculative(parent.speculative, said)
    return replace(parent, **changes)


def _directive(source: Source, path: tuple[str | int, ...], value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return tuple(_text(source, (*path, i), item) for i, item in enumerate(value))
    return _text(source, path, value)


def resolve_all(sources: Mapping[str, Source]) -> dict[str, Profile]:
    """Every profile that can be resolved; what cannot is a problem in its document."""
    return {name: profile for name in sources for profile in (_resolve(name, sources, ()),) if profile is not None}


def _resolve(name: str, sources: Mapping[str, Source], chain: tuple[str, ...]) -> Profile | None:
    source = sources[name]
    if source.tried or source.model is None:
        return source.profile
    wanted = source.model.extends
    parent: Profile | None = Profile(name=name)
    if wanted is not None:
        way = (*chain, name)
        if wanted in way:
            ring = " -> ".join((*way[way.index(wanted) :], wanted))
            for member in way[way.index(wanted) :]:
                sources[member].document.problem(("extends",), f"goes in a circle: {ring}")
                sources[member].tried = True
            return None
        if wanted not in sources:
            known = nearest(wanted, list(sources)) or f"; profiles here: {', '.join(sources)}"
            through = f" (chain: {' -> '.join((*way, wanted))})" if chain else ""
            source.document.problem(("extends",), f"no profile {wanted!r}{through}{known}")
            source.tried = True
            return None
        parent = _resolve(wanted, sources, way)
    if not source.tried:
        source.tried = True
        source.profile = merge(parent, source, source.model) if parent is not None else None
    return source.profile
