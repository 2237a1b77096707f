"""The dialect of an inspected build: an intent in this very build's spelling, or the reason why it has none. Pure."""

from __future__ import annotations

from dataclasses import replace

from ddtree_console.domain.build import Build, flag
from ddtree_console.domain.engines import dialects
from ddtree_console.domain.engines.base import DialectError
from ddtree_console.domain.engines.dialects import Dialect
from ddtree_console.domain.engines.sglang_renames import number
from ddtree_console.domain.spec import Profile

_ALGORITHM, _DRAFT, _WIDTH = "speculative-algorithm", "speculative-draft-model-path", "speculative-num-draft-tokens"
_SWITCHES = ("enable-ddtree", "tree-verify", "enable-tree")
OUR_PLUGIN = "ddtree"
"""distributions of the plug-in that takes its mode from the environment begin so."""


def inspected(build: Build) -> bool:
    """Whether its flags were read from its source: only then a spelling can be told from it."""
    return build.engine == "sglang" and build.source == "ast"


def dialect_of(build: Build) -> Dialect:
    """What this build can spell; `tree` is False where it has no DDTree."""
    release = number(build.release)
    minor = release[2] if release is not None and release[:2] == (0, 5) else None
    found = build.ddtree
    ours = str(found.get("plugin") or "").startswith(OUR_PLUGIN)
    if ours and minor in dialects.PLUGIN_RELEASES:
        return dialects.find(f"plugin-0.5.{minor}")
    named = [name for name in found.get("flags") or () if isinstance(name, str)]
    if not found or not found.get("algorithm"):
        return Dialect("build", tree=False, release=minor)
    switch = next((n for n in named if any(w in n for w in _SWITCHES) and _kind(build, n) == "bool"), "")
    budget = next((n for n in named if n.endswith("budget") and _kind(build, n) in ("int", "size", "")), "")
    width = _WIDTH if not budget and flag(build, _WIDTH) is not None else ""
    return Dialect("build", str(found["algorithm"]), switch, budget, width, ours, minor)


def _releases() -> str:
    return ", ".join(f"0.5.{n}" for n in dialects.PLUGIN_RELEASES)


def _kind(build: Build, name: str) -> str:
    one = flag(build, name)
    return one.kind if one is not None else "none"


def fit(profile: Profile, build: Build) -> Profile:
    """The profile with the dialect of that build, where it was inspected; as it is without an intent.

    DialectError says why this build cannot do what is intended.
    """
    intent = profile.speculative
    if not inspected(build) or intent is None or intent.kind == "none":
        return profile
    missing = [name for name in (_ALGORITHM, _DRAFT) if flag(build, name) is None]
    what = f"sglang {build.release}".strip()
    if missing:
        raise DialectError(f"{what} at {build.package} has no --{missing[0]}: it cannot do {intent.kind}")
    if intent.kind == "linear" and "DFLASH" not in build.algorithms:
        known = ", ".join(build.algorithms) or "none"
        raise DialectError(f"{what} at {build.package} has no DFLASH; its algorithms are {known}")
    dialect = dialect_of(build)
    stock = not build.ddtree and flag(build, _WIDTH) is not None
    if intent.kind == "ddtree" and stock and dialect.release in dialects.PLUGIN_RELEASES:
        # the console carries the plug-in there
        dialect = dialects.find(f"plugin-0.5.{dialect.release}")
    if intent.kind == "ddtree" and not dialect.tree:
        known = ", ".join(build.algorithms) or "none"
        raise DialectError(
            f"{what} at {build.package} has no DDTree, neither as an algorithm ({known}) nor as a flag or plug-in, and "
            f"the console's own plug-in is for stock {_releases()} only: choose another interpreter, or kind linear"
        )
    if intent.kind == "ddtree" and intent.budget is not None and not dialect.budget and not dialect.width:
        raise DialectError(f"{what} at {build.package} has no flag for a tree budget: leave speculative.budget out")
    fitted = replace(profile, dialect=dialects.name_of(dialect))
    dialects.spell(fitted.dialect, intent)
    return fitted
