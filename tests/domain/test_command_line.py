"""Command lines taken apart, and put together again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.domain import command_line
from ddtree_console.domain.engines import sglang_launch
from ddtree_console.domain.spec import Profile, Service

PY = ("/e/bin/python3", "-m", "sglang.launch_server")


def test_a_usual_launch() -> None:
    line = command_line.parse([*PY, "--model", "/m", "--tp-size", "2", "--port=30001", "--disable-cuda-graph",
                               "--cuda-graph-bs", "1", "2", "--api-key", "K", "--no-x"])  # fmt: skip
    assert (line.python, line.module, line.engine, line.model, line.port) == (PY[0], PY[2], "sglang", "/m", 30001)
    assert line.flags == {
        "tp-size": 2, "disable-cuda-graph": True, "cuda-graph-bs": [1, 2], "api-key": "K", "no-x": True,
    }  # fmt: skip
    assert line.args == ()


def test_prefixes_and_repeats_stay_verbatim() -> None:
    line = command_line.parse([*PY, "--mem-fraction", "0.8", "--lora", "a", "--lora", "b", "-x", "1", "--tp-size", "2"])
    assert line.args == ("--mem-fraction", "0.8", "--lora", "a", "--lora", "b", "-x", "1")
    assert line.flags == {"tp-size": 2}
    line = command_line.parse([*PY, "--model", "a", "--model-path", "b"])
    assert line.model is None and line.args == ("--model", "a", "--model-path", "b")


@pytest.mark.parametrize(
    ("argv", "engine", "head", "python"),
    [
        (["/usr/bin/env", "A=1", "/x/pypy3", "-u", "-m", "sglang.launch_server", "--x"], "sglang", 6, "/x/pypy3"),
        (["/e/bin/sglang", "serve", "--port", "1"], "sglang", 2, None),
        (["/e/bin/ddtree-wrapper", "--mode", "linear"], "wrapper", 1, None),
        (["python3", "-m", "ddtree_kernels.serve"], "wrapper", 3, "python3"),
        (["python3", "-I", "/x/server.py", "--port", "1"], "generic", 3, "python3"),
        (["/bin/sh", "-c", "exec x"], "generic", 1, None),
        ([], "generic", 0, None),
    ],
)  # fmt: skip
def test_who_is_started(argv: list[str], engine: str, head: int, python: str | None) -> None:
    line = command_line.parse(argv)
    assert (line.engine, line.head, line.python) == (engine, head, python)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("01", "01"), ("-1", -1), ("0.88", 0.88), ("0.880", "0.880"), ("1e-3", "1e-3"), ("nan", "nan"), ("", ""),
     ("9" * 30, "9" * 30), ("１", "１")],
)  # fmt: skip
def test_only_canonical_numbers_are_numbers(text: str, value: object) -> None:
    read = command_line.typed(text)
    assert read == value and type(read) is type(value) and str(read) == text


WORDS = st.sampled_from(["--model", "--port", "--a", "--a=1", "--tp-size", "2", "-1", "-x", "--", "v", "",
                         "--disable-x", "--mem-fraction", "--=", "--port=x", "--A"]) | st.text(max_size=4)  # fmt: skip


@given(st.lists(WORDS, max_size=12), st.sampled_from([PY, ("/bin/x",), ()]))
def test_every_word_is_held_exactly_once(words: list[str], head: tuple[str, ...]) -> None:
    line = command_line.parse([*head, *words])
    held = [*range(line.head), *line.loose]
    for flag in line.found:
        held += range(flag.first, flag.last)
    assert sorted(held) == list(range(len(line.argv)))
    assert line.args == tuple(line.argv[i] for i in line.loose)


FLAGS = st.dictionaries(
    st.sampled_from(["tp-size", "json", "load-format", "disable-cuda-graph"]),
    st.integers(-5, 10**6) | st.floats(0, 1) | st.text(max_size=5).filter(lambda t: not t.startswith("-")),
)


@given(FLAGS)
def test_what_is_rendered_is_read_back(flags: dict[str, object]) -> None:
    flags = {k: True if k.startswith("disable") else v for k, v in flags.items()}
    profile = Profile("p", python="/e/bin/python3", model="/m", flags=flags)
    line = command_line.parse(sglang_launch.command(profile, Service("h", "s", "s.service", 31000)).argv)
    assert (line.model, line.port, line.args) == ("/m", 31000, ())
    read = {k: v for k, v in line.flags.items() if k != "host"}
    assert {k: str(v) for k, v in read.items()} == {k: str(v) for k, v in flags.items()}
    assert command_line.running_flags(line.argv) == dict(line.flags)
