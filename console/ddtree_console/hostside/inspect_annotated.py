"""Fields annotated `A[type, help]` or `A[type, Arg(...)]`: flags that a dataclass or namespace declares (0.5.14+)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from ddtree_console.hostside.inspect_source import Module, Sources
from ddtree_console.hostside.inspect_values import UNKNOWN, Values, plain
from ddtree_console.hostside.inspect_words import HELP_CHARS, TYPES, called, deprecation, texts

_KINDS = {"int": "int", "float": "float", "str": "str", "bool": "bool"}


class Annotated:
    """Reads such fields. hidden: fields that are no flag by themselves (no_cli), by field name."""

    def __init__(self, sources: Sources, values: Values) -> None:
        self._sources, self._values = sources, values
        self.hidden: dict[str, dict[str, Any]] = {}

    def fields(self, module: Module, owner: ast.ClassDef) -> Iterator[dict[str, Any]]:
        """A row a flag, as in a BuildFlag."""
        for statement in owner.body:
            if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
                continue
            parts = self._parts(module, statement.annotation)
            if parts is None:
                continue
            row = self._row(module, statement, *parts)
            if row is not None:
                row["file"] = f"{module.path}:{statement.lineno}"
                yield row

    def _parts(self, module: Module, annotation: ast.expr) -> tuple[ast.expr, list[ast.expr]] | None:
        """(type, metadata) of `A[...]`; a quoted annotation is parsed."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value, mode="eval").body
            except (SyntaxError, ValueError, RecursionError):
                return None
        if not isinstance(annotation, ast.Subscript) or not self._is_annotated(module, annotation.value):
            return None
        inside: Any = annotation.slice
        if isinstance(inside, ast.Tuple) and len(inside.elts) >= 2:
            return inside.elts[0], inside.elts[1:]
        return None

    def _is_annotated(self, module: Module, node: ast.expr) -> bool:
        if isinstance(node, ast.Attribute):
            return node.attr == "Annotated"
        if not isinstance(node, ast.Name):
            return False
        if node.id in ("A", "Annotated"):
            return True
        found = self._sources.resolve(module, node.id)
        value = found[0].values.get(found[1]) if found else None
        return isinstance(value, ast.Name) and value.id == "Annotated"

    def _row(
        self, module: Module, statement: ast.AnnAssign, kind: ast.expr, metadata: list[ast.expr]
    ) -> dict[str, Any] | None:
        assert isinstance(statement.target, ast.Name)
        field = statement.target.id
        given: dict[str, ast.expr] | None = None
        for meta in metadata:
            if isinstance(meta, ast.Call) and called(meta.func) == "Arg":
                given = {k.arg: k.value for k in meta.keywords if k.arg}
                if meta.args:
                    given.setdefault("help", meta.args[0])
                break
            text = self._values.of(meta, module) if not isinstance(meta, ast.Call) else UNKNOWN
            if isinstance(text, str):
                given = {"help": meta}
                break
        if given is None:
            return None
        default = self._values.of(statement.value, module) if statement.value is not None else None
        value = plain(default) if default is not UNKNOWN else None
        if self._values.of(given.get("no_cli"), module) is True:
            self.hidden[field] = {"default": value}
            return None
        return self._flag(module, field, kind, given, value)

    def _flag(
        self, module: Module, field: str, kind: ast.expr, given: dict[str, ast.expr], default: Any
    ) -> dict[str, Any]:
        cli = self._values.of(given.get("cli_name"), module)
        name = cli.lstrip("-") if isinstance(cli, str) and cli else field.replace("_", "-")
        others = self._values.of(given.get("aliases"), module)
        aliases = [a[2:] if a.startswith("--") else a for a in others] if isinstance(others, list) else []
        action = called(given.get("action"))
        found, literal = self._kind(module, kind)
        choices = texts(self._values.of(given.get("choices"), module)) or literal
        if action == "BooleanOptionalAction":
            found, aliases = "bool", [*aliases, f"no-{name}", *(f"no-{a}" for a in aliases)]
        elif action.startswith(("store_true", "Deprecated")) and "Alias" not in action:
            found = "bool"
        elif action:
            found = ""
        elif "type_parser" in given:
            found = TYPES.get(called(given["type_parser"]), "")
        elif "nargs" in given:
            found = "" if self._values.of(given["nargs"], module) == "?" else "list"
        text = self._values.of(given.get("help"), module)
        text = text if isinstance(text, str) else ""
        more = dict(given)
        extra = given.get("action_kwargs")
        if isinstance(extra, ast.Dict):
            more.update({called(k): v for k, v in zip(extra.keys, extra.values)})
        elif isinstance(extra, ast.Call):
            more.update({k.arg: k.value for k in extra.keywords if k.arg})
        return {
            "name": name,
            "aliases": aliases,
            "kind": found,
            "items": self._items(kind) if found == "list" and "type_parser" not in given else "",
            "default": default,
            "choices": choices,
            "help": text[:HELP_CHARS],
            **deprecation(more, action, text, False),
        }

    def _items(self, node: ast.expr) -> str:
        """Kind of the members of a `List[..]` somewhere in a type."""
        for inside in ast.walk(node):
            if isinstance(inside, ast.Subscript) and called(inside.value) in ("List", "list"):
                return _KINDS.get(called(inside.slice), "str")
        return ""

    def _kind(self, module: Module, node: ast.expr) -> tuple[str, list[str]]:
        """(kind, choices) of a type: Optional and `| None` taken off, Literal gives choices."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            sides = [s for s in (node.left, node.right) if not (isinstance(s, ast.Constant) and s.value is None)]
            return self._kind(module, sides[0]) if len(sides) == 1 else ("", [])
        if isinstance(node, ast.Subscript):
            outer, inside = called(node.value), node.slice
            parts = list(inside.elts) if isinstance(inside, ast.Tuple) else [inside]
            if outer == "Literal":
                found = [self._values.of(p, module) for p in parts]
                told = [v for v in found if v is not UNKNOWN]
                return _KINDS.get(type(told[0]).__name__ if told else "", "str"), [str(v) for v in told]
            if outer in ("Optional", "Union"):
                real = [p for p in parts if not (isinstance(p, ast.Constant) and p.value is None)]
                return self._kind(module, real[0]) if len(real) == 1 else ("str", [])
            return ("list", []) if outer in ("List", "list") else ("str", [])
        return _KINDS.get(called(node), "str"), []
