"""Which modules a package imports when it starts, read from its files: nothing is imported, nothing is run.

From the module that is started, statements at the left margin are followed through the package itself; an import in a
function, a `try` or an `if` is not certain and does not count. Lines are found with a pattern, which is fast; only what
seems to be missing is confirmed with `ast`, which no text in quotes can fool.
"""

from __future__ import annotations

import ast
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_LINE = re.compile(rb"^(?:import[ \t]+([^\n#;]+)|from[ \t]+([.\w]+)[ \t]+import[ \t]+(\((?:[^)]*)\)|[^\n#;]+))", re.M)
_NAME = re.compile(r"\w+(?:\.\w+)*\Z")


@dataclass(frozen=True)
class Missing:
    """A module that is not there. by: the file and line that import it."""

    name: str
    by: str
    line: int = 0


@dataclass
class Scan:
    """What was found. files: how many were read. whole: False where the time was up before the end."""

    missing: list[Missing] = field(default_factory=list)
    outside: dict[str, str] = field(default_factory=dict)
    """top-level name of another package -> the file that imports it first"""
    files: int = 0
    whole: bool = True


class Folders:
    """Folders as they were when first looked at: one listing answers for every module in it."""

    def __init__(self) -> None:
        self._listed: dict[str, frozenset[str]] = {}

    def names(self, folder: str) -> frozenset[str]:
        """What lies in it; empty where it cannot be read."""
        if folder not in self._listed:
            try:
                self._listed[folder] = frozenset(os.listdir(folder))  # noqa: PTH208 - names alone, and fast
            except OSError:
                self._listed[folder] = frozenset()
        return self._listed[folder]

    def module(self, folder: str, parts: Sequence[str]) -> str:
        """The file of a module below a folder: a package's __init__, a .py, an extension of whatever Python; with a '/'
        at its end a bare folder (a namespace); '' for none."""
        inside = "/".join([folder, *parts[:-1]])
        if not parts:
            return f"{folder}/__init__.py" if "__init__.py" in self.names(folder) else f"{folder}/"
        name, there = parts[-1], self.names(inside)
        if name in there and "__init__.py" in self.names(f"{inside}/{name}"):
            return f"{inside}/{name}/__init__.py"
        if f"{name}.py" in there:
            return f"{inside}/{name}.py"
        extension = next((n for n in there if n.startswith(f"{name}.") and n.endswith(".so")), "")
        if extension:
            return f"{inside}/{extension}"
        return f"{inside}/{name}/" if name in there and Path(inside, name).is_dir() else ""


def _names(text: bytes) -> Iterator[str]:
    for part in text.decode("utf-8", "replace").strip("()").replace("\\\n", " ").split(","):
        word = part.split("#")[0].split()
        if word and _NAME.match(word[0]):
            yield word[0]


def statements(source: bytes) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(module, names taken from it) of the imports at the left margin; a relative module begins with dots."""
    for match in _LINE.finditer(source):
        if match[1] is not None:
            for name in _names(match[1]):
                yield name, ()
        else:
            yield match[2].decode(), tuple(_names(match[3]))


class Walker:
    """Follows the imports of `package` (its folder is `root`) until `until` (monotonic seconds)."""

    def __init__(self, package: str, root: str, until: float) -> None:
        self.package, self.root, self.until = package, root.rstrip("/"), until
        self.folders = Folders()
        self.scan = Scan()
        self._seen: set[str] = set()
        self._queue: list[str] = []

    def start(self, module: str) -> Scan:
        """Everything that importing `module` (and being started by it) takes."""
        self._take(module, "", 0)
        if module == self.package:
            self._add(self.folders.module(self.root, ("__main__",)))
        while self._queue:
            if time.monotonic() > self.until:
                self.scan.whole = False
                break
            self._read(self._queue.pop())
        return self.scan

    def _add(self, file: str) -> None:
        if file.endswith(".py") and file not in self._seen:
            self._seen.add(file)
            self._queue.append(file)

    def _take(self, module: str, by: str, line: int, names: Iterable[str] = ()) -> None:
        """One import: of a module outside, or of our own one with its parents and those names that are modules."""
        parts = module.split(".")
        if parts[0] != self.package:
            self.scan.outside.setdefault(parts[0], by)
            return
        for depth in range(1, len(parts) + 1):
            file = self.folders.module(self.root, parts[1:depth])
            if not file:
                if not by or self._really(by, module):
                    self.scan.missing.append(Missing(".".join(parts[:depth]), by, self._line(by, module)))
                return
            if file.endswith(".so"):
                return  # what lies below an extension is made by it as it loads
            self._add(file)
        for name in names:
            self._add(self.folders.module(self.root, [*parts[1:], name]))

    def _read(self, file: str) -> None:
        try:
            source = Path(file).read_bytes()
        except OSError:
            return
        self.scan.files += 1
        here = [self.package, *Path(file).relative_to(self.root).with_suffix("").parts]
        for module, names in statements(source):
            level = len(module) - len(module.lstrip("."))
            if level:
                base = here[: len(here) - level]
                module = ".".join([*base, *filter(None, [module[level:]])])
                if not base:
                    continue
            self._take(module, file, 0, names)

    def _really(self, file: str, module: str) -> bool:
        return self._line(file, module) > 0

    def _line(self, file: str, module: str) -> int:
        """Where that file really imports that module at its top level; 0 for nowhere, -1 where it does not parse."""
        if not file:
            return 0
        here = [self.package, *Path(file).relative_to(self.root).with_suffix("").parts]
        return line_of(file, module, here)

    def confirmed(self, name: str) -> Missing | None:
        """The first import of that top-level name as ast sees it; None where no file really has it."""
        for file in [self.scan.outside.get(name, ""), *sorted(self._seen)]:
            line = line_of(file, name, [], top=True) if file else 0
            if line > 0:
                return Missing(name, file, line)
        return None


def line_of(file: str, module: str, here: Sequence[str], top: bool = False) -> int:
    """The line that imports `module` (top: anything below that name) unconditionally; 0 for none."""
    try:
        source = Path(file).read_bytes()
        if module.rsplit(".", 1)[-1].encode() not in source:
            return 0
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return 0
    for node in tree.body:
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(here[: len(here) - node.level]) if node.level else []
            found = [".".join([*base, *filter(None, [node.module or ""])])]
        if any(name == module or (top and name.split(".")[0] == module) for name in found):
            return node.lineno
    return 0
