"""Any bytes in a fleet or profile file give a fleet or problems with file and line, never another exception."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.config import yamltree
from ddtree_console.config.load import ConfigError, load_fleet

KEYS = st.sampled_from(["hosts", "h", "services", "s", "unit", "port", "gpus", "profile", "fallback", "jump"]) | (
    st.sampled_from(["extends", "flags", "env", "args", "speculative", "kind", "must", "x", "1", "no", "<<", "~"])
    | st.sampled_from(["secret", "verbatim", "mem-fraction-static", "command", "address", "local", "dialect"])
)
ODD = ["|\n x", "!!binary aGk=", "!x y", "&a b", "? a", '"\\0"', '"\\ud800"', "9" * 400, "1" + "0" * 5000]
PLAIN = ["p", "q", "h", "1", "-1", "0.5", "1e-3", ".nan", ".inf", "010", "0x1F", "1:30", "yes", "~", "2024-01-01", "*a"]
PLAIN += ["s.service", "[]", "{}", "1e999"]
LEAVES = st.sampled_from(PLAIN + ODD) | st.text(max_size=5)


def flow(data: dict[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in data.items()) + "}"


TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.dictionaries(KEYS, inner, max_size=4).map(flow)
        | st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]")
    ),
    max_leaves=12,
)
SERVICE = st.dictionaries(KEYS, TREES, max_size=5).map(flow)
FILES = (
    TREES
    | st.text()
    | SERVICE.map(lambda s: f"hosts:\n  h:\n    address: a\n    services:\n      s: {s}\n      t: {s}\n")
)


@given(FILES, FILES, st.binary(max_size=30) | FILES.map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_any_files(tmp_path_factory: pytest.TempPathFactory, fleet: str, profile: str, other: bytes) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "fleet.yaml").write_bytes(fleet.encode("utf-8", "surrogatepass"))
    (folder / "p.yaml").write_bytes(profile.encode("utf-8", "surrogatepass"))
    (folder / "q.yaml").write_bytes(other)
    try:
        load_fleet(folder / "fleet.yaml")
    except ConfigError as error:
        assert error.problems
        for problem in error.problems:
            assert Path(problem.file).parent == folder and problem.line >= 1 and problem.reason
            lines = Path(problem.file).read_bytes().decode("utf-8", "replace")
            assert problem.line <= len(lines.splitlines()) + 1
            assert "\n" not in str(problem)


@given(FILES)
def test_lines_lead_into_the_text(text: str) -> None:
    document = yamltree.parse(text)
    count = len(text.splitlines()) + 1
    assert all(1 <= line <= count for line in document.lines.values())
    assert all("\n" not in str(problem) for problem in document.problems)


def test_a_bomb_of_aliases_ends_soon() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    document = yamltree.parse("\n".join(lines))
    assert document.problems and len(document.lines) < 2 * yamltree.MAX_NODES
    deep = yamltree.parse("[" * 3000)
    assert "nested too deeply" in str(deep.problems[0]) or "malformed" in str(deep.problems[0])
