"""What an expression of a source would be, as far as that can be told without running it."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any

from ddtree_console.hostside.inspect_source import Function, Module, Sources, imports_of

UNKNOWN = object()
"""stands for a value that only running the code would tell."""
DEEPEST = 40
MOST_STEPS = 20_000
"""of one evaluation: `A = A + A` doubles with each level."""
LONGEST = 4096


class Values:
    """Evaluates constants, lists, names, sums, f-strings, class attributes and functions that only return a list."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._steps = 0

    def of(self, node: ast.AST | None, module: Module, local: Mapping[str, Any] | None = None, depth: int = 0) -> Any:
        """The value, or UNKNOWN. local: names bound around it, already evaluated."""
        self._steps = 0 if depth == 0 else self._steps + 1
        if node is None or depth > DEEPEST or self._steps > MOST_STEPS:
            return UNKNOWN
        names = local or {}
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return self._items(node.elts, module, names, depth)
        if isinstance(node, ast.Dict):
            keys = [self.of(k, module, names, depth + 1) for k in node.keys]
            return UNKNOWN if any(k is UNKNOWN for k in keys) else {str(k): None for k in keys}
        if isinstance(node, ast.Name):
            return self._name(node.id, module, names, depth)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, module, depth)
        if isinstance(node, ast.Starred):
            return self.of(node.value, module, names, depth + 1)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.of(node.operand, module, names, depth + 1)
            return -value if isinstance(value, (int, float)) else UNKNOWN
        if isinstance(node, ast.BinOp):
            return self._sum(node, module, names, depth)
        if isinstance(node, ast.JoinedStr):
            return self._text(node, module, names, depth)
        if isinstance(node, ast.Call):
            return self._call(node, module, names, depth)
        return UNKNOWN

    def _items(self, nodes: Any, module: Module, names: Mapping[str, Any], depth: int) -> Any:
        out: list[Any] = []
        for node in nodes:
            value = self.of(node, module, names, depth + 1)
            if isinstance(node, ast.Starred) and isinstance(value, (list, dict)):
                out.extend(value)
            else:
                out.append(value)
        return UNKNOWN if len(out) > LONGEST else out

    def _name(self, name: str, module: Module, names: Mapping[str, Any], depth: int) -> Any:
        if name in names:
            return names[name]
        found = self._sources.resolve(module, name)
        if found is None or found[1] not in found[0].values:
            return UNKNOWN
        return self.of(found[0].values[found[1]], found[0], None, depth + 1)

    def _attribute(self, node: ast.Attribute, module: Module, depth: int) -> Any:
        """`Class.attribute`, `Enum.MEMBER.value`, `module.NAME`."""
        owner = node.value
        if isinstance(owner, ast.Attribute) and node.attr == "value":
            return self._attribute(owner, module, depth + 1)
        if not isinstance(owner, ast.Name):
            return UNKNOWN
        target = module.imports.get(owner.id)
        if target is not None:
            dotted = f"{target[0]}.{target[1]}" if target[1] else target[0]
            other = self._sources.load(dotted) if self._sources.find(dotted) else None
            if other is not None and node.attr in other.values:
                return self.of(other.values[node.attr], other, None, depth + 1)
        found = self._sources.resolve(module, owner.id)
        if found is None or found[1] not in found[0].classes:
            return UNKNOWN
        body = found[0].classes[found[1]]
        return self.of(attribute_of(body, node.attr), found[0], _constants(body), depth + 1)

    def _sum(self, node: ast.BinOp, module: Module, names: Mapping[str, Any], depth: int) -> Any:
        left = self.of(node.left, module, names, depth + 1)
        right = self.of(node.right, module, names, depth + 1)
        numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in (left, right))
        if isinstance(node.op, ast.Add):
            same = numbers or any(isinstance(left, t) and isinstance(right, t) for t in (str, list))
            return left + right if same else UNKNOWN
        if not numbers:
            return UNKNOWN
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Pow) and abs(right) <= 64 and abs(left) <= 1024:
            return left**right
        return UNKNOWN

    def _text(self, node: ast.JoinedStr, module: Module, names: Mapping[str, Any], depth: int) -> Any:
        parts: list[str] = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = self.of(part.value, module, names, depth + 1)
                if value is UNKNOWN or part.format_spec is not None:
                    return UNKNOWN
                parts.append(str(value))
            elif isinstance(part, ast.Constant):
                parts.append(str(part.value))
        return "".join(parts)

    def _call(self, node: ast.Call, module: Module, names: Mapping[str, Any], depth: int) -> Any:
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr == "keys" and not node.args:
            value = self.of(func.value, module, names, depth + 1)
            return list(value) if isinstance(value, dict) else UNKNOWN
        called = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
        if called in ("list", "tuple", "set", "sorted", "frozenset") and len(node.args) == 1:
            value = self.of(node.args[0], module, names, depth + 1)
            return list(value) if isinstance(value, (list, dict)) else UNKNOWN
        if called == "field":
            return self._field(node, module, depth)
        if isinstance(func, ast.Name) and not node.args and not node.keywords:
            found = self._sources.resolve(module, func.id)
            if found is not None and found[1] in found[0].functions:
                return self._returned(found[0].functions[found[1]], found[0], depth)
        return UNKNOWN

    def _field(self, node: ast.Call, module: Module, depth: int) -> Any:
        """`dataclasses.field(default=..)`, `field(default_factory=list)`, `field(default_factory=lambda: [..])`."""
        given = {k.arg: k.value for k in node.keywords if k.arg}
        if "default" in given:
            return self.of(given["default"], module, None, depth + 1)
        factory = given.get("default_factory")
        if isinstance(factory, ast.Lambda):
            return self.of(factory.body, module, None, depth + 1)
        empty: dict[str, Any] = {"list": [], "dict": {}, "set": []}
        return empty.get(factory.id, UNKNOWN) if isinstance(factory, ast.Name) else UNKNOWN

    def _returned(self, function: Function, module: Module, depth: int) -> Any:
        """What a function without arguments returns last, with the imports of its own body."""
        inner = Module(module.name, module.path, module.tree, module.values, module.classes, module.functions)
        inner.imports = dict(module.imports)
        returns: list[ast.Return] = []
        for node in ast.walk(function):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                inner.imports.update(imports_of(module.name, node))
            elif isinstance(node, ast.Return):
                returns.append(node)
        for found in sorted(returns, key=lambda r: r.lineno, reverse=True):
            value = self.of(found.value, inner, None, depth + 1)
            if value is not UNKNOWN:
                return value
        return UNKNOWN


def _constants(owner: ast.ClassDef) -> dict[str, Any]:
    """Plain constants of a class body: what a list in the same body may name."""
    found: dict[str, Any] = {}
    for statement in owner.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            found.update({t.id: statement.value.value for t in statement.targets if isinstance(t, ast.Name)})
    return found


def attribute_of(owner: ast.ClassDef, name: str) -> ast.expr | None:
    """The value that a class body gives to a name, None for none."""
    for statement in owner.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            if statement.target.id == name:
                return statement.value
        elif isinstance(statement, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in statement.targets
        ):
            return statement.value
    return None


def plain(value: Any, depth: int = 0) -> Any:
    """The value in JSON's own types, None for what has none there."""
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple, set)) and depth < 3:
        return [plain(x, depth + 1) for x in value]
    return None
