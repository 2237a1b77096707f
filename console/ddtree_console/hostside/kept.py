"""Kept candidates: releases/rN and way_back, each a unit, its profile and, where it names secrets, a secret.env."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddtree_console.domain.plan import SECRET_ENV, Candidate
from ddtree_console.hostside import durable, secret_env
from ddtree_console.hostside.roots import Roots


def folder(roots: Roots, unit: str, release: str) -> Path:
    """Where a release is kept."""
    return roots.kept(unit) / "releases" / release


def way_back_folder(roots: Roots, unit: str) -> Path:
    """Where the way back is kept."""
    return roots.kept(unit) / "way_back"


def number(name: str) -> int | None:
    """12 for r12, None for anything else."""
    return int(name[1:]) if name[:1] == "r" and name[1:].isascii() and name[1:].isdigit() else None


def names(roots: Roots, unit: str) -> list[str]:
    """Releases kept, oldest number first."""
    try:
        found = [path.name for path in (roots.kept(unit) / "releases").iterdir()]
    except OSError:
        return []
    return sorted((name for name in found if number(name) is not None), key=lambda name: number(name) or 0)


def unit_text(roots: Roots, unit: str, release: str) -> str | None:
    """The kept unit text of a release, None when it is not kept."""
    return durable.read_text(folder(roots, unit, release) / "unit.service")


def profile_name(roots: Roots, unit: str, release: str) -> str:
    """The name of the profile that made a release; '' when it is not kept."""
    return str(durable.read_json(folder(roots, unit, release) / "profile.json").get("name") or "")


def _read(where: Path, release: str) -> Candidate | None:
    text = durable.read_text(where / "unit.service")
    if text is None:
        return None
    raw = durable.read_json(where / "profile.json")
    return Candidate(
        unit_text=text,
        profile_name=str(raw.get("name") or ""),
        profile=dict(raw.get("profile") or {}),
        engine=str(raw.get("engine") or "generic"),
        release=release,
        secrets=dict(raw.get("secrets") or {}),
        set_flags=dict(raw.get("set_flags") or {}),
        must=tuple(raw.get("must") or ()),
    )


def read(roots: Roots, unit: str, release: str) -> Candidate | None:
    """A kept release, ready to be written as a trial; None when it is not kept."""
    return _read(folder(roots, unit, release), release)


def read_way_back(roots: Roots, unit: str) -> Candidate | None:
    """The kept way back, its secret.env still unnamed; None when none is kept."""
    return _read(way_back_folder(roots, unit), "")


def way_back_name(roots: Roots, unit: str) -> str:
    """Profile or service name of the way back; '' when there is none."""
    return str(durable.read_json(way_back_folder(roots, unit) / "profile.json").get("name") or "")


def _tells_a_secret(candidate: Candidate) -> bool:
    """Whether flags, arguments or an adopted unit's text hold a key: the unit is for all to read, this need not be."""
    from ddtree_console.domain.secrets import mask_data  # only here: the watcher reads what is kept, and starts often

    env = {key: value for key, value in (candidate.profile.get("env") or {}).items() if isinstance(value, str)}
    told = {**candidate.profile, "env": env, "set_flags": dict(candidate.set_flags)}
    return bool(mask_data(told) != told)


def _write(where: Path, text: str, candidate: Candidate, env: bytes | None, made: Mapping[str, Any]) -> None:
    spare = where.with_name(f".{where.name}.{os.getpid()}.new")
    shutil.rmtree(spare, ignore_errors=True)
    try:
        durable.make_dir(spare)
        durable.write_atomic(spare / "unit.service", text.encode("utf-8", "surrogateescape"))
        about = {
            "name": candidate.profile_name,
            "profile": dict(candidate.profile),
            "engine": candidate.engine,
            "set_flags": dict(candidate.set_flags),
            "must": list(candidate.must),
            "secrets": dict(candidate.secrets),
            **made,
        }
        durable.write_json(spare / "profile.json", about, 0o600 if _tells_a_secret(candidate) else 0o644)
        if env is not None:
            durable.write_atomic(spare / "secret.env", env, 0o600)
        if where.exists():
            shutil.rmtree(where)
        spare.rename(where)
        durable.sync_dir(where.parent)
    except OSError:
        shutil.rmtree(spare, ignore_errors=True)
        raise


def text_at(candidate: Candidate, where: Path) -> str:
    """The unit text with its secret.env named."""
    return candidate.unit_text.replace(SECRET_ENV, str(where / "secret.env"))


def _same(roots: Roots, unit: str, name: str, candidate: Candidate, env: bytes | None) -> bool:
    where = folder(roots, unit, name)
    try:
        kept_env = (where / "secret.env").read_bytes()
    except OSError:
        kept_env = None
    return (
        unit_text(roots, unit, name) == text_at(candidate, where)
        and profile_name(roots, unit, name) == candidate.profile_name
        and kept_env == env
    )


def keep(roots: Roots, unit: str, candidate: Candidate, made: Mapping[str, Any], reuse: bool = False) -> Candidate:
    """Keeps a release under the next number; `reuse`: an identical one stands for it. OSError, secret_env.Missing."""
    env = secret_env.content(roots, candidate.secrets) if candidate.secrets else None
    have = names(roots, unit)
    release = next((name for name in reversed(have) if reuse and _same(roots, unit, name, candidate, env)), "")
    if not release:
        release = f"r{max((number(name) or 0 for name in have), default=0) + 1}"
        where = folder(roots, unit, release)
        _write(where, text_at(candidate, where), candidate, env, made)
    found = read(roots, unit, release)
    if found is None:
        raise OSError(f"{folder(roots, unit, release)}: was written and cannot be read")
    return found


def keep_way_back(roots: Roots, unit: str, candidate: Candidate, made: Mapping[str, Any]) -> None:
    """Replaces the kept way back. OSError, secret_env.Missing."""
    env = secret_env.content(roots, candidate.secrets) if candidate.secrets else None
    _write(way_back_folder(roots, unit), candidate.unit_text, candidate, env, made)


def keep_way_back_service(roots: Roots, unit: str, other: str, made: Mapping[str, Any]) -> None:
    """Notes that the way back is another slot. OSError."""
    where = way_back_folder(roots, unit)
    if (where / "unit.service").exists():
        shutil.rmtree(where)
    durable.write_json(where / "profile.json", {"name": other, "service": True, **made})
