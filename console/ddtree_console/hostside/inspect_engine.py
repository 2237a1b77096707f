"""What a build of SGLang is, from its source: flags, speculative algorithms, DDTree and how it is spelled."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddtree_console.hostside.inspect_flags import HELP, FlagReader
from ddtree_console.hostside.inspect_source import Module, Sources, imports_of
from ddtree_console.hostside.inspect_values import UNKNOWN, Values
from ddtree_console.hostside.inspect_words import called

TREE_WORDS = ("ddtree", "dflash-tree", "tree-verify", "tree-attention", "tree-budget")
"""parts of flag names with which the known forks spell tree verification."""
_WIDENS = re.compile(r"add_(\w+)_choices\Z")
ALGORITHM = "speculative-algorithm"
MOST_MODULES, MOST_KIN = 400, 60


def flags(sources: Sources, package: str, plugins: Sequence[str]) -> dict[str, Any]:
    """flags, and a problem where names could not be told. plugins: dotted modules of entry points."""
    reader = FlagReader(sources)
    main = sources.load(f"{package}.srt.server_args")
    todo = [m for m in (*sources.below(f"{package}.srt.arg_groups"), main) if m is not None]
    # fields first: a manual registration may ask for their defaults
    for module in todo:
        reader.module(module)
    seen = {m.name for m in todo}
    for other in reader.followed(main) if main is not None else ():
        if other.name not in seen and len(seen) < MOST_MODULES:
            seen.add(other.name)
            reader.module(other)
    for name in plugins:
        for module in _kin(sources, name):
            reader.module(module, hooks_only=True)
            for flag in _widened(module):
                if flag in reader.flags:
                    reader.flags[flag]["choices"] = []
    found = reader.flags
    if found:
        found.setdefault("help", dict(HELP))
    problems = []
    if reader.unnamed:
        problems.append(f"{reader.unnamed} flags are not known, because their names are computed")
    return {"flags": [found[name] for name in sorted(found)], "problems": problems}


def _widened(module: Module) -> list[str]:
    """Flags whose choices a plug-in adds to, by SGLang's own `add_attention_backend_choices([..])` and its like."""
    calls = (called(node.func) for node in ast.walk(module.tree) if isinstance(node, ast.Call))
    return [match.group(1).replace("_", "-") for name in calls if (match := _WIDENS.match(name))]


def _kin(sources: Sources, name: str) -> list[Module]:
    """A plug-in's entry module and what that imports of its own package, nearest first."""
    top = name.partition(".")[0]
    found: dict[str, Module] = {}
    todo = [name]
    while todo and len(found) < MOST_KIN:
        module = sources.load(todo.pop(0))
        if module is None or module.name in found:
            continue
        found[module.name] = module
        for node in ast.walk(module.tree):
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            for base, inside in imports_of(module.name, node, module.path.endswith("__init__.py")).values():
                dotted = f"{base}.{inside}" if inside and sources.find(f"{base}.{inside}") else base
                if dotted.partition(".")[0] == top and dotted not in found:
                    todo.append(dotted)
    return list(found.values())


def algorithms(sources: Sources, package: str, rows: Sequence[dict[str, Any]], plugins: Sequence[str]) -> list[str]:
    """Names that --speculative-algorithm takes: choices, the enum's members, registrations of plug-ins."""
    found: dict[str, None] = {}
    for row in rows:
        if row["name"] == ALGORITHM:
            found.update(dict.fromkeys(row["choices"]))
    spec = sources.load(f"{package}.srt.speculative.spec_info")
    owner = spec.classes.get("SpeculativeAlgorithm") if spec is not None else None
    for statement in owner.body if owner is not None else ():
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if name.isupper() and name != "NONE":
                found[name] = None
    if any(name in found for name in ("EAGLE", "EAGLE3")):
        found["NEXTN"] = None  # from_string maps it to EAGLE
    values = Values(sources)
    for plugin in plugins:
        for module in _kin(sources, plugin):
            found.update(dict.fromkeys(_registered(module, values)))
    return [name for name in found if name]


def _registered(module: Module, values: Values) -> list[str]:
    """NAME of each `SpeculativeAlgorithm.register("NAME", ...)`, call or decorator."""
    names = []
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        if node.func.attr in ("register", "register_algorithm") and "Algorithm" in ast.dump(node.func.value):
            name = values.of(node.args[0], module)
            if isinstance(name, str) and name is not UNKNOWN:
                names.append(name.upper())
    return names


def ddtree(
    sources: Sources, package: str, rows: Sequence[dict[str, Any]], known: Sequence[str], plugin: str
) -> dict[str, Any]:
    """algorithm, flags and files of DDTree in this build; {} where there is none. plugin: NAME VERSION of ours, ''."""
    spelled = [r["name"] for r in rows if any(word in r["name"].replace("_", "-") for word in TREE_WORDS)]
    algorithm = next((name for name in known if "DDTREE" in name.upper().replace("_", "")), "")
    spec = sources.find(f"{package}.srt.speculative.spec_info")
    files = sorted(f.name for f in Path(spec).parent.glob("*.py") if "ddtree" in f.name.lower()) if spec else []
    if not spelled and not algorithm and not files:
        return {}
    if not algorithm and spelled and "DFLASH" in known:
        algorithm = "DFLASH"
    found: dict[str, Any] = {"algorithm": algorithm, "flags": spelled, "files": files}
    if plugin:
        found["plugin"] = plugin
    return found


def release_of(sources: Sources, package: str) -> str:
    """The version in `_version.py` or `version.py`, '' for none."""
    values = Values(sources)
    for name in ("_version", "version"):
        module: Module | None = sources.load(f"{package}.{name}") if sources.find(f"{package}.{name}") else None
        for key in ("__version__", "version") if module is not None else ():
            value = values.of(module.values.get(key), module) if module is not None else UNKNOWN
            if isinstance(value, str) and value:
                return value
    return ""
