"""YAML as plain data that remembers the line of each key, with every problem collected."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

MAX_DEPTH = 40
MAX_NODES = 50_000
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9_]*)(\.[0-9_]*)?([eE][-+][0-9]+)?\Z|[-+]?\.[0-9_]+\Z|\.nan\Z", re.IGNORECASE)
Path_ = tuple[str | int, ...]


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong in a file. line counts from 1; key '' means the file as a whole."""

    file: str
    line: int
    key: str
    reason: str

    def __str__(self) -> str:
        key = f" {self.key}:" if self.key else ""
        return f"{self.file}:{self.line}:{key} {self.reason}"


class ConfigError(ValueError):
    """A fleet or profile that cannot be used; problems holds all that was found, in the order of files and lines."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass
class Document:
    """A YAML file as data. lines: path of a key or item -> its line, from 1."""

    file: str
    data: Any = None
    lines: dict[Path_, int] = field(default_factory=dict)
    raw: dict[Path_, str] = field(default_factory=dict)
    """path of a number -> how it is written, for places where text is wanted (`1.10`)."""
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: Path_) -> int:
        """The line of the path, or of what holds it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def problem(self, path: Path_, reason: str, line: int | None = None) -> None:
        """Notes one problem."""
        self.problems.append(Problem(self.file, line or self.line(path), dotted(path), reason))


def dotted(path: Path_) -> str:
    """`hosts.ct129.services[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


# libyaml reads ten times faster, and has no bound on nesting: only for files that we wrote ourselves
_FAST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path: Path, ours: bool = False) -> Document:
    """The file's document; an unreadable or malformed file is a problem in it, never an exception. ours: it came with
    this package."""
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        document = Document(str(path))
        before = path.read_bytes()[: error.start]
        document.problem((), f"is not UTF-8: byte 0x{error.object[error.start]:02x}", before.count(b"\n") + 1)
        return document
    except OSError as error:
        document = Document(str(path))
        document.problem((), f"cannot be read: {error.strerror or error}")
        return document
    return parse(text, str(path), _FAST if ours else yaml.SafeLoader)


def parse(text: str, file: str = "(text)", loader: Any = yaml.SafeLoader) -> Document:
    """The document in a text; never raises."""
    document = Document(file)
    try:
        nodes = list(yaml.compose_all(text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(filter(None, (error.context, error.problem)))
        document.problem((), f"malformed YAML: {said}", mark.line + 1 if mark else 1)
        return document
    except yaml.YAMLError as error:
        document.problem((), "malformed YAML: " + " ".join(str(error).split()))
        return document
    except RecursionError:
        document.problem((), "malformed YAML: nested too deeply")
        return document
    if len(nodes) > 1:
        document.problem((), "holds several YAML documents; one was expected", nodes[1].start_mark.line + 1)
    if nodes and nodes[0] is not None:
        document.data = _Builder(document).build(nodes[0], (), ())
    return document


class _Builder:
    """Nodes to data. Scalars as PyYAML's safe loader reads them; everything else is refused with its line."""

    def __init__(self, document: Document) -> None:
        self.document, self.count = document, 0
        self.scalars = yaml.constructor.SafeConstructor()

    def build(self, node: yaml.Node, path: Path_, above: tuple[int, ...]) -> Any:
        line = node.start_mark.line + 1
        self.document.lines.setdefault(path, line)
        self.count += 1
        if id(node) in above or len(above) > MAX_DEPTH or self.count > MAX_NODES:
            if self.count <= MAX_NODES + 1:
                self.document.problem(path, "an alias refers to itself, or the nesting is too deep", line)
            return None
        above = (*above, id(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, above)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, i), above) for i, item in enumerate(node.value)]
        return self._scalar(node, path, line)

    def _scalar(self, node: yaml.Node, path: Path_, line: int) -> Any:
        try:
            if node.tag.rpartition(":")[2] in ("str", "int", "float", "bool", "null"):
                return self._number(node, self.scalars.construct_object(node), path, line)
        except (yaml.YAMLError, ValueError, OverflowError):
            pass
        self.document.problem(path, f"YAML reads {node.value!r} with the tag {node.tag}, which is not used here", line)
        return None

    def _number(self, node: yaml.Node, value: Any, path: Path_, line: int) -> Any:
        """Refuses what YAML 1.1 makes a number against all expectation: 010, 0x1F, 12:30."""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            self.document.raw[path] = node.value
            if not _DECIMAL.match(node.value) and abs(value) != float("inf"):
                self.document.problem(
                    path, f"YAML reads {node.value} as the number {value}: write that, or put it in quotes", line
                )
        return value

    def _mapping(self, node: yaml.MappingNode, path: Path_, above: tuple[int, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None:
                self.document.problem(path, "a list or mapping cannot be a key", line)
                continue
            here = (*path, key)
            if key_node.tag.endswith(":merge"):
                self.document.problem(here, "YAML merge keys are not used here; use `extends`", line)
                continue
            if key in found:
                first = self.document.line(here)
                self.document.problem(here, f"given twice, first in line {first}", line)
                continue
            self.document.lines[here] = line
            if not key_node.tag.endswith(":str"):
                kind = key_node.tag.rpartition(":")[2]
                self.document.problem(here, f"YAML reads this key as {kind}, not as text: write it in quotes", line)
            found[key] = self.build(value_node, here, above)
        return found
