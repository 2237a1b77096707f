"""Flags that a source declares, in all three styles: add_argument, annotated fields, namespaces under arg_groups/."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from ddtree_console.hostside.inspect_annotated import Annotated
from ddtree_console.hostside.inspect_source import Function, Module, Sources, imports_of
from ddtree_console.hostside.inspect_values import UNKNOWN, Values, plain
from ddtree_console.hostside.inspect_words import HELP_CHARS, TYPES, called, deprecation, texts

_SWITCHES = ("store_true", "store_false", "store_const", "count", "BooleanOptionalAction")
HELP = {
    "name": "help",
    "aliases": ["-h"],
    "kind": "bool",
    "default": False,
    "choices": [],
    "file": "",
    "help": "every parser has it",
    "deprecated": "",
    "instead": "",
    "refused": False,
}


class FlagReader:
    """Collects the flags of modules; what a later declaration of the same name says completes the earlier one."""

    def __init__(self, sources: Sources) -> None:
        self._sources, self._values = sources, Values(sources)
        self._annotated = Annotated(sources, self._values)
        self.flags: dict[str, dict[str, Any]] = {}
        self.unnamed = 0
        """declarations whose names only running the code would tell."""
        self._seen: set[str] = set()

    def module(self, module: Module, hooks_only: bool = False) -> None:
        """Every annotated field and every add_argument of a module.

        hooks_only: a plug-in's module, whose programs of their own (with a parser made there) are none of the engine's.
        """
        if module.name in self._seen:
            return
        self._seen.add(module.name)
        for owner in module.classes.values():
            for row in self._annotated.fields(module, owner):
                self._put(row)
        for call, local in _calls(module.tree.body, {}, self._values, module):
            if not (hooks_only and _own_parser(module, call)):
                self._argument(call, module, local)

    def followed(self, module: Module) -> Iterator[Module]:
        """Modules that this one hands its parser to: `Other.add_cli_args(parser)`, `add_more(parser)`."""
        for function in ast.walk(module.tree):
            if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            parsers = _parsers(function)
            for node in ast.walk(function) if parsers else ():
                if isinstance(node, ast.Call) and any(isinstance(a, ast.Name) and a.id in parsers for a in node.args):
                    root = node.func
                    while isinstance(root, ast.Attribute):
                        root = root.value
                    name = root.id if isinstance(root, ast.Name) else ""
                    target = _import_of(module, function, name)
                    other = self._load(*target) if target else None
                    if other is not None:
                        yield other

    def _load(self, name: str, inside: str) -> Module | None:
        dotted = f"{name}.{inside}" if inside else name
        return self._sources.load(dotted if self._sources.find(dotted) else name)

    def _put(self, row: dict[str, Any]) -> None:
        old = self.flags.get(row["name"])
        if old is None:
            self.flags[row["name"]] = row
            return
        # a manual registration beside the field: what it says itself wins, the rest stays
        self.flags[row["name"]] = {**old, **{k: v for k, v in row.items() if v not in ("", None, [], False)}}

    def _argument(self, call: ast.Call, module: Module, local: Mapping[str, Any]) -> None:
        names = [self._values.of(arg, module, local) for arg in call.args]
        flat = [n for name in names for n in (name if isinstance(name, list) else [name])]
        options = [n for n in flat if isinstance(n, str) and n.startswith("-")]
        if not options:
            # the helper that registers annotated fields names none itself: its module declares their `Arg`
            if any(n is UNKNOWN for n in flat) and "Arg" not in module.classes:
                self.unnamed += 1
            return
        given = {k.arg: k.value for k in call.keywords if k.arg}
        row = self._row(options, given, module, local)
        row["file"] = f"{module.path}:{call.lineno}"
        self._put(row)

    def _row(
        self, options: list[str], given: Mapping[str, ast.expr], module: Module, local: Mapping[str, Any]
    ) -> dict[str, Any]:
        long = [o[2:] for o in options if o.startswith("--")] or options
        action = called(given.get("action"))
        text = self._values.of(given.get("help"), module, local)
        choices = self._values.of(given.get("choices"), module, local)
        default = self._default(given.get("default"), module, local, long[0])
        row: dict[str, Any] = {
            "name": long[0],
            "aliases": [*long[1:], *(o for o in options if not o.startswith("--") and o not in long)],
            "kind": kind_for(given, action),
            "items": TYPES.get(called(given["type"]), "") if "type" in given else "str",
            "default": plain(default) if default is not UNKNOWN else None,
            "choices": texts(choices),
            "help": text[:HELP_CHARS] if isinstance(text, str) else "",
            **deprecation(given, action, text if isinstance(text, str) else "", self._refuses(action, module)),
        }
        if action in ("store_true", "BooleanOptionalAction") and row["default"] is None and "default" not in given:
            row["default"] = False if action == "store_true" else None
        if action == "BooleanOptionalAction":
            row["aliases"] += [f"no-{name}" for name in long]
        return row

    def _default(self, node: ast.expr | None, module: Module, local: Mapping[str, Any], name: str) -> Any:
        """`ServerArgs.x`, `_declared_default("x")`, or any constant."""
        if isinstance(node, ast.Call) and len(node.args) == 1 and "default" in called(node.func):
            field = self._values.of(node.args[0], module, local)
            known = self.flags.get(str(field).replace("_", "-")) or self._annotated.hidden.get(str(field))
            return known.get("default") if known else UNKNOWN
        return self._values.of(node, module, local)

    def _refuses(self, action: str, module: Module) -> bool:
        """Whether the class of that action raises instead of storing (0.4.6's DeprecatedAction)."""
        found = self._sources.resolve(module, action) if action.startswith("Deprecated") else None
        owner = found[0].classes.get(found[1]) if found else None
        calls = [n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == "__call__"] if owner else []
        return any(isinstance(statement, ast.Raise) for call in calls for statement in call.body)


def kind_for(given: Mapping[str, ast.expr], action: str) -> str:
    """The kind of an add_argument call."""
    nargs = given.get("nargs")
    count = nargs.value if isinstance(nargs, ast.Constant) else None
    if action in _SWITCHES:
        return "bool"
    if action.startswith("Deprecated") and "Alias" not in action and nargs is None:
        return "bool"
    if action and action not in ("store", "append", "extend") and "Alias" not in action:
        return ""
    if count == "?":
        return ""
    if count in ("+", "*") or (isinstance(count, int) and count > 1) or action in ("append", "extend"):
        return "list"
    return TYPES.get(called(given["type"]), "") if "type" in given else "str"


def _own_parser(module: Module, call: ast.Call) -> bool:
    """Whether the parser of that call was made in the same module by ArgumentParser(..)."""
    made: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            func = node.value.func
            kind = called(func)
            owner = called(func.value) if isinstance(func, ast.Attribute) and kind.startswith("add_") else ""
            for target in node.targets:
                if isinstance(target, ast.Name):
                    made[target.id] = owner or kind
    name = called(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    for _ in range(4):  # a group of a group of a parser
        name = made.get(name, name)
    return name == "ArgumentParser"


def _parsers(function: Function) -> set[str]:
    """Names of a function's arguments that are parsers."""
    found = set()
    for arg in function.args.args:
        said = ast.dump(arg.annotation) if arg.annotation is not None else ""
        if arg.arg in ("parser", "group", "arg_parser") or "ArgumentParser" in said:
            found.add(arg.arg)
    return found


def _import_of(module: Module, function: Function, name: str) -> tuple[str, str] | None:
    for node in ast.walk(function):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found = imports_of(module.name, node).get(name)
            if found is not None:
                return found
    return module.imports.get(name)


def _calls(
    body: list[Any], local: dict[str, Any], values: Values, module: Module
) -> Iterator[tuple[ast.Call, dict[str, Any]]]:
    """Every add_argument call with the names bound around it; loops over known values are gone through."""
    for statement in body:
        if isinstance(statement, ast.For) and isinstance(statement.target, ast.Name):
            items = values.of(statement.iter, module, local)
            if isinstance(items, (list, dict)) and len(items) <= 256:
                for item in items:
                    yield from _calls(statement.body, {**local, statement.target.id: item}, values, module)
                continue
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name):
                local[target.id] = values.of(statement.value, module, local)
        nested = [getattr(statement, part, None) for part in ("body", "orelse", "finalbody")]
        handlers = getattr(statement, "handlers", None) or []
        blocks = [b for b in nested if isinstance(b, list)] + [h.body for h in handlers]
        if blocks:
            inner = {} if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else local
            for block in blocks:
                yield from _calls(block, dict(inner) if inner is not local else local, values, module)
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                yield node, dict(local)
