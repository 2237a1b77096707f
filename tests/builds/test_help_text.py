"""--help read back: of real argparse parsers in any shape, of other programs' forms, and of text that is no help."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_console.domain import help_text
from ddtree_console.domain.build import BuildFlag

WORD = st.from_regex(r"[a-z][a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,3}", fullmatch=True)
SHAPES: dict[str, dict[str, Any]] = {
    "switch": {"action": "store_true"},
    "text": {"type": str},
    "whole": {"type": int, "metavar": "INT"},
    "choice": {"choices": ["one", "two-2", "3"]},
    "many": {"nargs": "+"},
    "maybe": {"nargs": "?"},
    "both": {"action": argparse.BooleanOptionalAction},
}
HELP = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "Zs"]), max_size=90)
OPTION = st.tuples(WORD, st.sampled_from(sorted(SHAPES)), st.booleans(), HELP)


@settings(max_examples=80, deadline=None)
@given(st.lists(OPTION, min_size=1, max_size=8, unique_by=lambda o: o[0]), st.sampled_from([60, 80, 120, 1000]))
def test_options_of_a_real_parser(options: list[tuple[str, str, bool, str]], columns: int) -> None:
    parser = argparse.ArgumentParser(
        prog="server", formatter_class=lambda prog: argparse.HelpFormatter(prog, width=columns)
    )
    for name, shape, short, told in options:
        if name in ("help", "no-help") or f"no-{name}" in [o[0] for o in options] or name.startswith("no-"):
            continue
        names = [f"--{name}", f"--{name}-too"] if short else [f"--{name}"]
        parser.add_argument(*names, help=told.replace("%", "%%").replace("-", " "), **SHAPES[shape])
    real = {a.option_strings[0].lstrip("-") if a.dest != "help" else "help": a for a in parser._actions}
    read = {flag.name: flag for flag in help_text.parse(parser.format_help())}
    assert read.keys() == real.keys()
    for name, action in real.items():
        flag = read[name]
        spelled = {f"--{n}" if not n.startswith("-") else n for n in (flag.name, *flag.aliases)}
        assert spelled == set(action.option_strings)
        assert (flag.kind == "bool") == (action.nargs == 0)
        assert flag.choices == tuple(action.choices or ())
        assert (flag.kind == "list") == (action.nargs == "+")
        if action.metavar == "INT":
            assert flag.kind == "int"


OTHER = """Usage: server [OPTIONS]

  Serves a model.

Options:
  --model TEXT            Model path.  [required]
  -p, --port INTEGER      Port to listen on.  [default: 8000]
  --tree / --no-tree      Verify a tree.
  --mode [linear|ddtree]  How.
  --help                  Show this message and exit.
"""
LLAMA = """usage: llama-server [options]

----- common params -----

-h,    --help, --usage                  print usage and exit
-t,    --threads N                      number of threads to use during generation (default: -1)
                                        (env: LLAMA_ARG_THREADS)
-fa,   --flash-attn [on|off|auto]       set Flash Attention use
"""


def named(text: str) -> dict[str, BuildFlag]:
    return {flag.name: flag for flag in help_text.parse(text)}


def test_the_forms_of_other_programs() -> None:
    flags = named(OTHER)
    assert set(flags) == {"model", "port", "tree", "mode", "help"}
    assert flags["port"].aliases == ("-p",) and flags["port"].kind == "int" and flags["port"].default == "8000"
    assert flags["tree"].aliases == ("no-tree",) and flags["tree"].kind == "bool"
    llama = named(LLAMA)
    assert set(llama) == {"help", "threads", "flash-attn"}
    assert llama["threads"].kind == "int" and llama["threads"].default == "-1"
    assert "LLAMA_ARG_THREADS" in llama["threads"].help


@pytest.mark.parametrize(
    "text", ["", "\n\n", "no options here\n", "  -- \n", "Traceback (most recent call last):\n  x\n"]
)
def test_text_without_options_gives_none(text: str) -> None:
    assert help_text.parse(text) == ()


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    assert all(isinstance(flag, BuildFlag) for flag in help_text.parse(text))
