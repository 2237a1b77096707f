"""How each known SGLang build spells speculation. No two DDTree builds agree and stock SGLang has none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddtree_console.domain.engines.base import DialectError
from ddtree_console.domain.spec import Speculative

READ = "build:"
"""begins the name of a dialect that was read from a build and is none of the known ones."""
_RELEASE = re.compile(r"(?:stock|plugin)-0\.5\.(\d+)\Z")
_WORD = re.compile(r"[A-Za-z0-9_-]*\Z")
FIRST_DFLASH, LAST_READ = 11, 23
PLUGIN_RELEASES = (12,)
"""N of each 0.5.N that the plug-in was made for; it refuses every other."""


@dataclass(frozen=True)
class Dialect:
    """One build's spelling.

    algorithm: its tree's --speculative-algorithm. switch: a bare flag that turns the tree on. budget: flag that takes
    the tree nodes besides the root; width: flag that takes nodes with the root. mode_env: variables of the plug-in.
    release: N of 0.5.N where the graph flags are known. tree: False for linear only.
    """

    name: str
    algorithm: str = "DDTREE"
    switch: str = ""
    budget: str = ""
    width: str = ""
    mode_env: bool = False
    release: int | None = None
    tree: bool = True
    note: str = ""


@dataclass(frozen=True)
class Spelling:
    """Flags (dash names) and environment for an intent, in order."""

    flags: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


_WIDTH = "speculative-num-draft-tokens"
_FORKS = (
    Dialect("pr29907", budget="speculative-ddtree-budget", note="sgl-project/sglang PR 29907"),
    Dialect("pr31069", "DFLASH", "speculative-dflash-tree-verify", width=_WIDTH, note="sgl-project/sglang PR 31069"),
    Dialect("db-guo", "DFLASH", "speculative-dflash-enable-ddtree", width=_WIDTH, note="DB-Guo/sglang-ddtree-dev"),
    Dialect("rancy-wang", budget="speculative-ddtree-budget", note="Rancy-Wang/sglang"),
)
TREE_NAMES = (*(d.name for d in _FORKS), "plugin")
SHADOW_NAMES = ("plugin",)


def find(name: str | None) -> Dialect:
    """The dialect of that name; None is a build that has not been named, which only promises linear DFLASH."""
    if name is None:
        return Dialect("unnamed build", tree=False)
    if name.startswith(READ):
        return _read(name)
    if name == "plugin":
        name = f"plugin-0.5.{PLUGIN_RELEASES[-1]}"
    for fork in _FORKS:
        if fork.name == name:
            return fork
    match = _RELEASE.match(name)
    release = int(match.group(1)) if match else 0
    if match and name.startswith("plugin") and release in PLUGIN_RELEASES:
        return Dialect(name, width=_WIDTH, mode_env=True, release=release)
    if match and name.startswith("stock") and release <= LAST_READ:
        return Dialect(name, tree=False, release=release)
    exact = [f"plugin-0.5.{n}" for n in PLUGIN_RELEASES]
    known = ", ".join([f"stock-0.5.N (N to {LAST_READ})", *TREE_NAMES, *exact])
    raise DialectError(f"dialect {name!r} is not known; known are {known}")


def name_of(dialect: Dialect) -> str:
    """The name by which `find` gives the same spelling: of a known dialect where one spells so."""
    same = ("algorithm", "switch", "budget", "width", "mode_env", "tree")
    candidates = [fork.name for fork in _FORKS]
    if dialect.release is not None:
        candidates += [f"plugin-0.5.{dialect.release}", f"stock-0.5.{dialect.release}"]
    for name in candidates:
        try:
            known = find(name)
        except DialectError:
            continue
        if not known.tree and not dialect.tree:
            return name
        if all(getattr(known, key) == getattr(dialect, key) for key in same):
            return name
    parts = [f"{key}={getattr(dialect, key)}" for key in ("algorithm", "switch", "budget", "width")]
    parts += [f"mode_env={int(dialect.mode_env)}", f"tree={int(dialect.tree)}"]
    return READ + ",".join([*parts, *([f"release={dialect.release}"] if dialect.release is not None else [])])


def _read(name: str) -> Dialect:
    """The dialect in a name that `name_of` made; DialectError for any other."""
    given = dict(part.partition("=")[::2] for part in name[len(READ) :].split(","))
    if any(not _WORD.match(value) for value in given.values()) or "algorithm" not in given:
        raise DialectError(f"dialect {name!r} is not known: it was not read from a build")
    release = given.get("release", "")
    return Dialect(
        name,
        given["algorithm"],
        given.get("switch", ""),
        given.get("budget", ""),
        given.get("width", ""),
        given.get("mode_env") == "1",
        int(release) if release.isdigit() else None,
        given.get("tree") == "1",
    )


def spell(name: str | None, intent: Speculative | None) -> Spelling:
    """The intent in this build's flags; DialectError says why not and which dialects can."""
    if intent is None or intent.kind == "none":
        return Spelling()
    if intent.kind not in ("linear", "ddtree"):
        raise DialectError(f"speculative kind {intent.kind!r} is none of none, linear, ddtree")
    dialect = find(name)
    if not intent.draft:
        raise DialectError(f"speculative kind {intent.kind} needs a draft model: set speculative.draft")
    if intent.budget is not None and intent.budget < 1:
        raise DialectError(f"speculative budget {intent.budget} is below 1")
    if intent.kind == "linear":
        return _linear(dialect, intent)
    if not dialect.tree:
        raise DialectError(f"{dialect.name} cannot do ddtree; dialects that can: {', '.join(TREE_NAMES)}")
    if intent.shadow and not dialect.mode_env:
        raise DialectError(f"{dialect.name} has no shadow mode; dialects that have: {', '.join(SHADOW_NAMES)}")
    flags: dict[str, Any] = {
        "speculative-algorithm": dialect.algorithm,
        "speculative-draft-model-path": intent.draft,
    }
    if dialect.switch:
        flags[dialect.switch] = True
    if intent.budget is not None:
        flags[dialect.budget or dialect.width] = intent.budget + (1 if dialect.width else 0)
    env: dict[str, str] = {}
    if dialect.mode_env:
        env["DDTREE_MODE"] = "shadow" if intent.shadow else "tree"
        if intent.budget is not None:
            env["DDTREE_BUDGET"] = str(intent.budget)
    return Spelling(flags, env)


def _linear(dialect: Dialect, intent: Speculative) -> Spelling:
    """Native DFLASH, verified as a chain; forks and the plug-in keep it."""
    if dialect.release is not None and dialect.release < FIRST_DFLASH:
        raise DialectError(
            f"{dialect.name} has no DFLASH, which came with 0.5.{FIRST_DFLASH}; "
            f"dialects that can: stock-0.5.{FIRST_DFLASH} to stock-0.5.{LAST_READ}, {', '.join(TREE_NAMES)}"
        )
    if intent.shadow:
        raise DialectError("shadow belongs to kind ddtree: a linear run has no tree to keep in its shadow")
    flags: dict[str, Any] = {"speculative-algorithm": "DFLASH", "speculative-draft-model-path": intent.draft}
    if intent.budget is not None:
        flags[_WIDTH] = intent.budget + 1
    return Spelling(flags)


def release_of(name: str | None) -> int | None:
    """N of 0.5.N for a dialect that names its release, else None."""
    try:
        return find(name).release
    except DialectError:
        return None


_GONE = {
    "disable-piecewise-cuda-graph": (20, "--disable-prefill-cuda-graph"),
    "enable-piecewise-cuda-graph": (20, "--cuda-graph-backend-prefill"),
    "cuda-graph-max-bs": (20, "--cuda-graph-max-bs-decode"),
    "cuda-graph-bs": (20, "--cuda-graph-bs-decode"),
    "mamba-scheduler-strategy": (20, "--mamba-radix-cache-strategy"),
    "speculative-dflash-draft-window-size": (20, "--speculative-draft-window-size"),
}
_NEW = {
    "disable-prefill-cuda-graph": (14, "--disable-piecewise-cuda-graph"),
    "disable-decode-cuda-graph": (14, "--disable-cuda-graph"),
    "cuda-graph-max-bs-decode": (14, "--cuda-graph-max-bs"),
    "disable-piecewise-cuda-graph": (7, ""),
}


def flag_warnings(name: str | None, flags: Mapping[str, Any]) -> tuple[str, ...]:
    """What this release is known to make of these flags; nothing where the dialect names no release."""
    release = release_of(name)
    if release is None:
        return ()
    found: list[str] = []
    on = {flag for flag, value in flags.items() if value is not False and value is not None}
    for flag in flags:
        gone, instead = _GONE.get(flag, (None, ""))
        if flag in on and gone is not None and release >= gone:
            found.append(f"--{flag} is gone since 0.5.{gone}: the server ends with exit 2; use {instead}")
        since, before = _NEW.get(flag, (None, ""))
        if flag in on and since is not None and release < since:
            hint = f"; use {before}" if before else ""
            found.append(f"--{flag} came with 0.5.{since}: 0.5.{release} ends with exit 2{hint}")
    piecewise = 10 <= release <= 13 or (7 <= release <= 9 and "enable-piecewise-cuda-graph" in on)
    if "disable-cuda-graph" in on and piecewise and "disable-piecewise-cuda-graph" not in on:
        stop = (
            "add --disable-piecewise-cuda-graph to stop it"
            if release >= 10
            else "leave --enable-piecewise-cuda-graph out"
        )
        found.append(f"--disable-cuda-graph stops only the decode graph in 0.5.{release}: the piecewise graph is still "
                     f"captured; {stop}")  # fmt: skip
    return tuple(found)
