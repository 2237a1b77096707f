"""The flags in what a program prints for --help: argparse's form, and the forms that look like it. Pure."""

from __future__ import annotations

import re

from ddtree_console.domain.build import BuildFlag

LARGEST = 1 << 20
_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][A-Za-z0-9_.-]*")
_LINE = re.compile(r"^(?: {0,16}|\t)(-{1,2}[A-Za-z][^\n]*)$")
_CHOICES = re.compile(r"\{([^{}]*)\}")
_DEFAULT = re.compile(r"[(\[]\s*default(?: is|:|=)?\s*([^)\]]*)[)\]]", re.I)
_GAP = re.compile(r"(?<![, ]) {2,}|\t")
"""between names and help; some align their long names behind a short one's comma."""
_KINDS = {"INT": "int", "INTEGER": "int", "N": "int", "FLOAT": "float", "STR": "str", "STRING": "str", "PATH": "str"}


def parse(text: str) -> tuple[BuildFlag, ...]:
    """Each option once, in order; () where the text holds none. A text that is no help gives no error."""
    found: dict[str, BuildFlag] = {}
    entry: list[str] = []
    for line in [*text[:LARGEST].splitlines(), "end"]:
        started = _LINE.match(line.rstrip())
        if (started or not line.startswith((" ", "\t"))) and entry:
            flag = _flag(entry)
            if flag is not None:
                found.setdefault(flag.name, flag)
            entry = []
        if started:
            entry = [line.strip()]
        elif entry:
            entry.append(line.strip())
    return tuple(found.values())


def _flag(lines: list[str]) -> BuildFlag | None:
    """One entry: the line of its names, and the lines of its help below."""
    head, _, first = _split(lines[0])
    names: list[str] = []
    takes = ""
    for part in _parts(head):
        match = _OPTION.match(part)
        if match is None:
            break
        names.append(match.group(0))
        takes = part[match.end() :].strip(" =") or takes
    long = [n[2:] for n in names if n.startswith("--")]
    if not long:
        return None
    told = " ".join(x for x in (first, *lines[1:]) if x)
    choices = _CHOICES.search(takes)
    default = _DEFAULT.search(told)
    return BuildFlag(
        name=long[0],
        aliases=(*long[1:], *(n for n in names if not n.startswith("--"))),
        kind=_kind(takes),
        default=default.group(1).strip() if default else None,
        choices=tuple(c.strip() for c in choices.group(1).split(",")) if choices and "..." not in takes else (),
        help=told[:400],
    )


def _split(line: str) -> tuple[str, str, str]:
    """(names and what they take, gap, help on the same line)."""
    gap = _GAP.search(line)
    return (line, "", "") if gap is None else (line[: gap.start()], gap.group(0), line[gap.end() :].strip())


def _parts(head: str) -> list[str]:
    """`-h, --help`, `--x X, -x X`, `--tp {1,2}`: cut at commas that are followed by an option."""
    return re.split(r",\s+(?=-)|\s+/\s+(?=-)", head)


def _kind(takes: str) -> str:
    if not takes:
        return "bool"
    if "..." in takes or takes.count("[") > 1:
        return "list"
    if takes.startswith("["):
        return ""
    return "str" if takes.startswith("{") else _KINDS.get(takes.strip("<>").upper(), "")
