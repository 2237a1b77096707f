"""`explain`: why a service failed, from any log file or journal export; offline. `--rules` tests rule files."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ddtree_console.cli.output import Output, safe
from ddtree_console.config import load
from ddtree_console.config import rules as rule_files
from ddtree_console.config.yamltree import Problem
from ddtree_console.domain.findings import logfile
from ddtree_console.domain.findings.engine import Findings
from ddtree_console.domain.findings.rules import Rules, rules_from_json
from ddtree_console.domain.findings.types import Edit, Finding

BLOCK = 1 << 20
LINE = 1 << 16
"""bytes of a line that are read: what decides stands at its beginning."""


def user_folder() -> Path:
    """Where an operator keeps rules: `rules/` beside the user's fleet file, in ~/.config/ddtree-console."""
    return load.places(None, {**os.environ, "DDTREE_FLEET": ""})[-1].parent / "rules"


def lines(file: IO[bytes]) -> Iterator[str]:
    """Lines of a file in bounded memory: of a longer line only its beginning."""
    while raw := file.readline(LINE):
        if raw[-1] == 10:
            yield raw[:-1].decode("utf-8", "replace")
            continue
        yield raw.decode("utf-8", "replace")
        while len(raw) == LINE and raw[-1] != 10:
            raw = file.readline(LINE)


def backwards(file: IO[bytes]) -> Iterator[str]:
    """The same lines, last first."""
    at, rest = file.seek(0, os.SEEK_END), b""
    first, empty = True, not at
    while at:
        size = min(BLOCK, at)
        at -= size
        file.seek(at)
        cut = (file.read(size) + rest).split(b"\n")
        rest = cut[0][: 8 * BLOCK]
        for raw in reversed(cut[1:]):
            if not (first and not raw):
                yield raw[:LINE].decode("utf-8", "replace")
            first = False
    if not empty:
        yield rest[:LINE].decode("utf-8", "replace")


def entries(file: IO[bytes]) -> Iterator[logfile.Entry]:
    """What the file holds, oldest first. The file must be able to seek."""
    file.seek(0)
    reverse = logfile.newest_first(lines(file))
    file.seek(0)
    reader = logfile.Reader()
    for line in backwards(file) if reverse else lines(file):
        for entry in reader.feed(line):  # noqa: UP028 - most lines give one: `yield from` costs more
            yield entry
    yield from reader.end()


def explain(file: IO[bytes], rules: Rules) -> Findings:
    """The engine after the whole file."""
    engine = Findings(rules)
    feed = engine.feed
    for text, t, pid, source, _ in entries(file):
        feed(text, t=t, pid=pid, source=source)
    engine.close()
    return engine


def as_json(engine: Findings) -> dict[str, Any]:
    """The one object of --json."""
    return {"findings": [f.to_json() for f in engine.findings()], "phase": engine.phase}


def _opened(name: str) -> IO[bytes]:
    if name != "-":
        return Path(name).open("rb")
    spool: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    while block := sys.stdin.buffer.read(BLOCK):
        spool.write(block)
    return spool


def edit_text(edit: Edit) -> str:
    """One change in words."""
    name = f"--{edit.name}" if edit.target == "flag" else edit.name
    value = "" if edit.value is None else f" {edit.value}"
    words = {"set": f"set {name}{value}", "remove": f"remove {name}"}
    bound = {"raise": "at least", "lower": "at most"}
    return words.get(edit.op) or f"{edit.op} {name}{f' to {bound.get(edit.op)}{value}' if value else ''}"


def _show(found: Finding, output: Output, with_rule: bool) -> None:
    colour = "bad" if found.fatal else "warn"
    output.line(output.paint(f"{'✖' if found.fatal else '▲'} {found.slug}", colour) + f"  {safe(found.summary)}")
    if found.blames:
        output.line(f"  the flag edited last is the cause: --{safe(found.blames)}")
    for piece in found.evidence:
        output.line(output.paint(f"  {piece.line:>8}  ", "dim") + safe(piece.text))
    for text in found.rules_out:
        output.line(f"  not: {safe(text)}")
    for i, remedy in enumerate(found.remedies, 1):
        output.line(f"  {i}. {safe(remedy.text)}")
        for edit in remedy.edits:
            output.line(output.paint(f"       {safe(edit_text(edit))}", "good"))
        if remedy.command:
            output.line(output.paint(f"       $ {safe(remedy.command)}", "work"))
    if with_rule:
        output.line(output.paint(f"  rule: {found.rule or '(none matched)'}", "dim"))


def _rules(output: Output, *, strict: bool) -> tuple[Rules, list[Problem]]:
    """All usable rules. An operator's broken file costs its rules, not the diagnosis."""
    rows, problems = [], []
    for folder in (rule_files.BUILTIN, user_folder()):
        for path in rule_files.files(folder):
            found, document = rule_files.check(path)
            rows += found
            problems += document.problems
    for problem in problems:
        output.note(safe(str(problem)))
    if strict and not output.as_json:
        own = [r["id"] for p in rule_files.files(user_folder()) for r in rule_files.check(p)[0]]
        output.line(f"{len(rows)} rules, {len(own)} of them yours ({user_folder()}), {len(problems)} problems")
    return rules_from_json(rows), problems


def main(args: argparse.Namespace, output: Output) -> int:
    """0: read (whatever was found); 2: no such file, or a broken rule file with --rules."""
    rules, problems = _rules(output, strict=args.rules)
    if not args.file:
        if not args.rules:
            output.note("ddtree-console: explain needs a FILE, or - for standard input")
            return 2
        return 2 if problems else 0
    try:
        with _opened(args.file) as file:
            engine = explain(file, rules)
    except OSError as error:
        output.note(f"ddtree-console: cannot read {args.file}: {error.strerror or error}")
        return 2
    if output.as_json:
        output.json(as_json(engine))
    else:
        found = engine.findings()
        for one in found:
            _show(one, output, args.rules)
        if not found:
            output.line(f"nothing wrong found in {engine.lines:,} lines; phase: {engine.phase or '-'}")
    return 2 if args.rules and problems else 0
