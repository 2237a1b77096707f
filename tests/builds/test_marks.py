"""Marks against a real argparse parser, and the spelling that each build wants."""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_console.domain.build import REFUSED, Build, FlagMark, build_from_json
from ddtree_console.domain.engines.sglang_launch import flag_words
from ddtree_console.domain.flag_marks import launch, marks
from ddtree_console.hostside import inspect_engine
from ddtree_console.hostside.inspect_source import Sources
from tests.builds import trees
from tests.builds.test_reference import reference


def build_of(files: dict[str, str], where: Path, release: str) -> Build:
    sources = Sources([str(trees.write(files, where))])
    rows = inspect_engine.flags(sources, "sglang", [])["flags"]
    return build_from_json({"engine": "sglang", "release": release, "source": "ast", "flags": rows})


@functools.cache
def named(release: str) -> Build:
    """A build that has the names of a stock release, as its own parser printed them."""
    real = reference(release)
    switches = set(real["switches"])
    rows = [
        {"name": n[2:], "kind": "bool" if n in switches else ""}
        for n in {*real["printed"], *real["hidden"]}
        if n.startswith("--")
    ]
    return build_from_json({"engine": "sglang", "release": release, "source": "ast", "flags": rows})


def mark(build: Build, name: str, value: Any = True, *more: str) -> FlagMark:
    flags = {name: value, **dict.fromkeys(more, True)}
    return next(m for m in marks(flags, (), build) if m.name == name)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Build, argparse.ArgumentParser]]:
    """The build of the plain tree, and its own parser, executed."""
    where = tmp_path_factory.mktemp("plain")
    build = build_of(trees.PLAIN, where, "0.5.12")
    (where / "sglang/__init__.py").write_text("")
    sys.path.insert(0, str(where))
    try:
        from sglang.srt.server_args import ServerArgs

        parser = argparse.ArgumentParser(exit_on_error=True)
        ServerArgs.add_cli_args(parser)
        yield build, parser
    finally:
        sys.path.remove(str(where))
        for name in [n for n in sys.modules if n == "sglang" or n.startswith("sglang.")]:
            del sys.modules[name]


def refused(parser: argparse.ArgumentParser, words: list[str]) -> bool:
    """Whether the real parser, or a flag of it, ends the server."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            parser.parse_args(["--model-path", "m", *words])
        except SystemExit as ended:
            return ended.code != 0
        except ValueError:
            return True
    return False


NAMES = st.sampled_from(
    [
        "host",
        "port",
        "mem-fraction-static",
        "mem-fraction",
        "sizes",
        "attention-backend",
        "attention",
        "tp-size",
        "tp",
        "tensor-parallel-size",
        "disable-cuda-graph",
        "disable",
        "disable-p",
        "cuda-graph",
        "cuda-graph-m",
        "fused",
        "no-fused",
        "enable-flashmla",
        "speculative-algorithm",
        "spec",
        "decode-attention",
        "nothing-like-it",
        "hostt",
        "p",
        "po",
        "model",
    ]
)
VALUES = st.one_of(
    st.just(True),
    st.integers(-3, 99),
    st.floats(0, 1),
    st.sampled_from(["triton", "fa3", "x", "DFLASH", "0.5", "7", "32k", "1_0"]),
    st.lists(st.integers(0, 9), min_size=1, max_size=3),
)


@settings(max_examples=250, deadline=None)
@given(name=NAMES, value=VALUES)
def test_what_is_marked_as_refused_is_what_the_real_parser_refuses(
    plain: tuple[Build, argparse.ArgumentParser], name: str, value: Any
) -> None:
    build, parser = plain
    said = marks({name: value}, (), build)
    assert [m.name for m in said] == [name]
    words = list(flag_words({name: value}))
    assert (said[0].state in REFUSED) == refused(parser, words), (said[0], words)


def test_arguments_are_marked_like_flags(plain: tuple[Build, argparse.ArgumentParser]) -> None:
    build, _ = plain
    args = ["--port=x", "--sizes", "1", "-2", "--fused", "--gone", "3", "--", "--host"]
    assert launch({"host": "h", "fused": False}, args) == [
        ("host", "h"), ("port", "x"), ("sizes", ["1", "-2"]), ("fused", True), ("gone", "3"),
    ]  # fmt: skip
    states = {m.name: m.state for m in marks({"host": "h"}, args, build)}
    assert states == {"host": "ok", "port": "bad-value", "sizes": "ok", "fused": "ok", "gone": "unknown"}


def test_a_secret_is_not_repeated(tmp_path: Path) -> None:
    build = build_from_json(
        {"source": "ast", "flags": [{"name": "api-key", "kind": "bool"}, {"name": "admin-api-key", "kind": "int"}]}
    )
    said = marks({"api-key": "hunter2", "admin-api-key": "hunter3"}, (), build)
    assert [m.state for m in said] == ["bad-value", "bad-value"]
    assert "hunter" not in repr(said)


# (release, flag, value, state, what it wants): each row is a line of the release notes or of a run of that parser
@pytest.mark.parametrize(
    ("release", "name", "value", "state", "wanted"),
    [
        ("0.5.23", "cuda-graph-max-bs", 8, "ambiguous", "cuda-graph-max-bs-decode"),
        ("0.5.23", "disable-piecewise-cuda-graph", True, "renamed", "disable-prefill-cuda-graph"),
        ("0.5.23", "speculative-ddtree-budget", 15, "unknown", ""),
        ("0.5.23", "mem-fraction", 0.8, "ok", "mem-fraction-static"),
        ("0.5.20", "mamba-scheduler-strategy", "auto", "renamed", "mamba-radix-cache-strategy"),
        ("0.5.23", "speculative-dflash-draft-window-size", 4, "renamed", "speculative-draft-window-size"),
        ("0.5.20", "prefill-round-robin-balance", True, "removed", ""),
        ("0.5.12", "disable-prefill-cuda-graph", True, "renamed", "disable-piecewise-cuda-graph"),
        ("0.5.12", "cuda-graph-max-bs-decode", 8, "renamed", "cuda-graph-max-bs"),
        ("0.5.9", "disable-piecewise-cuda-graph", True, "unknown", ""),
        ("0.5.23", "log-lvel", "info", "unknown", "log-level"),
        ("0.5.5", "mamba-scheduler-strategy", "auto", "unknown", ""),
    ],
)
def test_names_of_stock_releases(release: str, name: str, value: Any, state: str, wanted: str) -> None:
    said = mark(named(release), name, value)
    assert (said.state, said.wanted) == (state, wanted)


@pytest.mark.parametrize(
    ("release", "with_flags", "state", "words"),
    [
        ("0.4.6", (), "ok", "stops every graph"),
        ("0.5.5", ("enable-piecewise-cuda-graph",), "ok", "the piecewise one too"),
        ("0.5.9", ("enable-piecewise-cuda-graph",), "partial", "stops only the decode graph"),
        ("0.5.9", (), "ok", "only on request"),
        ("0.5.12", (), "partial", "the piecewise prefill graph is still captured"),
        ("0.5.12", ("disable-piecewise-cuda-graph",), "ok", "stops the decode graph"),
        ("0.5.15", (), "ok", "stops the decode and the prefill graph"),
        ("0.5.23", (), "ok", "stops the decode and the prefill graph"),
    ],
)
def test_what_disable_cuda_graph_does(release: str, with_flags: tuple[str, ...], state: str, words: str) -> None:
    said = mark(named(release), "disable-cuda-graph", True, *with_flags)
    assert (said.state, words in said.text) == (state, True), said
    assert said.wanted == ("disable-piecewise-cuda-graph" if release == "0.5.12" and state == "partial" else "")


def test_a_retired_flag_names_what_the_source_names(tmp_path: Path) -> None:
    build = build_of(trees.NAMESPACES, tmp_path, "0.5.20")
    said = mark(build, "disable-cuda-graph")
    assert said.state == "deprecated" and "stops the decode and the prefill graph" in said.text
    assert said.wanted == "disable-decode-cuda-graph --disable-prefill-cuda-graph"
    assert mark(build, "sampling-backend", "nothing").state == "bad-value"


def test_a_build_that_was_not_inspected_gives_the_reason() -> None:
    build = Build(problems=("flags are not known, because /opt/venv/bin/python finds no package sglang",))
    said = mark(build, "host", "h")
    assert said.state == "not-known" and "finds no package" in said.text


KEYS = st.sampled_from(
    ["engine", "flags", "name", "aliases", "choices", "versions", "problems", "ddtree", "cached", "source"]
)
PLAIN_JSON = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
JSON = st.recursive(PLAIN_JSON, lambda x: st.lists(x, max_size=4) | st.dictionaries(KEYS, x, max_size=5), max_leaves=20)


@settings(max_examples=60, deadline=None)
@given(JSON)
def test_any_answer_of_a_host_makes_a_build(raw: Any) -> None:
    build = build_from_json(raw)
    assert isinstance(build, Build) and all(isinstance(f.name, str) for f in build.flags)
    marks({"host": "x"}, ("--x",), build)
