"""Source files of a package as trees, without importing anything: names resolved across its modules.

Nothing here raises on what a source holds: a file that does not parse is a line in `problems`.
"""

from __future__ import annotations

import ast
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Union

LARGEST = 4 * 1024 * 1024
"""bytes of a source file above which it is not read: no module of flags is that large."""
Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]


@dataclass
class Module:
    """One file. name: dotted. values: module-level constants. imports: name here -> (module, name there or '')."""

    name: str
    path: str
    tree: ast.Module
    values: dict[str, ast.expr] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)


class Sources:
    """Files below the folders of a package's import path. problems: what could not be read, one a line."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = tuple(folders)
        self._known: dict[str, Module | None] = {}
        self.problems: list[str] = []
        self.read: list[str] = []
        """paths that were read, in order."""

    def find(self, name: str) -> str:
        """The file of a dotted module, '' where there is none."""
        inside = name.replace(".", "/")
        for folder in self._folders:
            for end in (f"{inside}.py", f"{inside}/__init__.py"):
                path = Path(folder, end)
                if path.is_file():
                    return str(path)
        return ""

    def load(self, name: str, path: str = "") -> Module | None:
        """The module of that dotted name, None where it is missing or does not parse."""
        if name not in self._known:
            self._known[name] = None  # a module that imports itself ends here
            found = path or self.find(name)
            if found:
                self._known[name] = self._parse(name, found)
        return self._known[name]

    def _parse(self, name: str, path: str) -> Module | None:
        try:
            if Path(path).stat().st_size > LARGEST:
                self.problems.append(f"flags of {path} are not known, because it is larger than {LARGEST} bytes")
                return None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # odd escapes in others' sources are no word of ours
                tree = ast.parse(Path(path).read_bytes(), path)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            said = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else str(error)
            self.problems.append(f"what {path} declares is not known, because it does not parse: {said}")
            return None
        self.read.append(path)
        module = Module(name, path, tree)
        is_package = Path(path).name == "__init__.py"
        for statement in _top(tree.body):
            _note(module, statement, is_package)
        return module

    def below(self, package: str) -> Iterator[Module]:
        """Every module of a package and of those inside it, sorted by name."""
        folders = [Path(f, package.replace(".", "/")) for f in self._folders]
        root = next((f for f in folders if f.is_dir()), None)
        for folder, inside, files in os.walk(root) if root is not None else ():
            inside[:] = sorted(d for d in inside if d.isidentifier() and d != "__pycache__")
            tail = Path(folder).relative_to(root or "").parts
            for file in sorted(files):
                if file.endswith(".py"):
                    parts = (package, *tail, *(() if file == "__init__.py" else (file[:-3],)))
                    module = self.load(".".join(parts), str(Path(folder, file)))
                    if module is not None:
                        yield module

    def resolve(self, module: Module, name: str) -> tuple[Module, str] | None:
        """Where a name of a module is defined, through its imports; None where that is not in these folders."""
        for _ in range(8):
            if name in module.values or name in module.classes or name in module.functions:
                return module, name
            target = module.imports.get(name)
            if target is None or not target[1]:
                return None
            found = self.load(target[0])
            if found is None:
                return None
            module, name = found, target[1]
        return None


def _top(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of the module's own level, also those under `if` and `try` (TYPE_CHECKING, optional imports)."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from _top(statement.body)
            yield from _top(statement.orelse)
        elif isinstance(statement, ast.Try):
            yield from _top(statement.body)
            for handler in statement.handlers:
                yield from _top(handler.body)


def _note(module: Module, statement: ast.stmt, is_package: bool) -> None:
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Name):
                module.values.setdefault(target.id, statement.value)
    elif isinstance(statement, ast.AnnAssign):
        if isinstance(statement.target, ast.Name) and statement.value is not None:
            module.values.setdefault(statement.target.id, statement.value)
    elif isinstance(statement, ast.ClassDef):
        module.classes[statement.name] = statement
    elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        module.functions[statement.name] = statement
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        module.imports.update(imports_of(module.name, statement, is_package))


def imports_of(
    module: str, statement: ast.Import | ast.ImportFrom, is_package: bool = False
) -> dict[str, tuple[str, str]]:
    """name -> (module, name there; '' for the module itself) of one import statement, relative ones made absolute."""
    if isinstance(statement, ast.Import):
        tops = ((a, a.name.split(".")[0]) for a in statement.names)
        return {a.asname or top: (a.name if a.asname else top, "") for a, top in tops}
    base = statement.module or ""
    if statement.level:
        parts = module.split(".")
        keep = len(parts) - statement.level + (1 if is_package else 0)
        base = ".".join([*parts[: max(keep, 0)], *([base] if base else [])])
    return {a.asname or a.name: (base, a.name) for a in statement.names if a.name != "*"}
