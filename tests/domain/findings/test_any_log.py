"""No log makes the engine raise, whatever it holds; and none takes long."""

from __future__ import annotations

import io
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_console.cli.explain import as_json, explain
from ddtree_console.domain.findings.engine import Findings
from ddtree_console.domain.findings.slugs import SLUGS
from ddtree_console.domain.findings.types import from_json
from tests.domain.findings.conftest import builtin
from tests.failures.score import cases
from tests.failures.wordings import log, wordings

LINES = [line for case in cases() for line in case.lines]
WORDS = [line for _, row in list(wordings())[::3] for line in log(row)]
PIECES = st.sampled_from([*LINES, *WORDS])
TEXT = st.text(max_size=60)


def cut(line: str, at: int, more: str) -> str:
    return line[: at % (len(line) + 1)] + more


BROKEN = st.builds(cut, PIECES, st.integers(0, 400), TEXT)
ANY = st.lists(PIECES | BROKEN | TEXT | st.builds(lambda a, b: f"{a} {b}", PIECES, PIECES), max_size=40)


@settings(max_examples=60, deadline=None)
@given(ANY)
def test_no_file_raises_and_every_finding_is_whole(rows: list[str]) -> None:
    data = "\n".join(rows).encode("utf-8", "surrogatepass")
    found = as_json(explain(io.BytesIO(data), builtin()))
    assert isinstance(found["phase"], str)
    for one in found["findings"]:
        assert one["slug"] in SLUGS and one["summary"] and 0 <= one["confidence"] <= 1
        assert "{" not in one["summary"].replace("{'", "").replace('{"', "") or "{" in str(rows)
        assert all(e["line"] >= 1 and len(e["text"]) <= 500 for e in one["evidence"])
        kept = from_json(one)
        assert kept is not None and kept.slug == one["slug"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["feed", "unit", "silence", "end", "probe"]),
            PIECES | TEXT,
            st.floats(0, 1e6),
            st.integers(0, 3),
        ),
        max_size=40,
    )
)
def test_no_order_of_calls_raises(calls: list[tuple[str, str, float, int]]) -> None:
    engine = Findings(builtin(), flags={"mem-fraction-static": 0.9, "odd": None})
    for kind, text, t, pid in calls:
        if kind == "feed":
            engine.feed(text, t=t, pid=pid, source=("", "systemd", "kernel", "?")[pid])
        elif kind == "unit":
            engine.unit("failed" if pid else "active", text[:9], text[:9], "killed", str(pid), pid, t)
        elif kind == "silence":
            engine.silence(t)
        elif kind == "probe":
            engine.probe(text[:9], pid, t)
        else:
            engine.end()
        found = engine.findings()
        assert engine.verdict() == (found[0] if found else None)


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=4000))
def test_bytes_are_read(data: bytes) -> None:
    as_json(explain(io.BytesIO(data), builtin()))


@pytest.mark.parametrize("rule", builtin().rules, ids=lambda rule: rule.id)
def test_no_pattern_takes_long_on_a_line_made_for_it(rule: object) -> None:
    for literal in rule.any:  # type: ignore[attr-defined]
        for glue in ("", ": "):
            text = ((literal + glue) * 4096)[:4096]
            began = time.process_time()
            for pattern in (rule.match, rule.unless):  # type: ignore[attr-defined]
                if pattern is not None:
                    pattern.search(text)
            assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    "piece", ["[2026-01-01 10:00:00 TP0] ", "A.", "a", "(x pid=1) ", "\x1b[", "it/s][20", "\r", "'", "=1, "]
)
@pytest.mark.parametrize("head", ["", "Traceback (most recent call last):", "server_args=ServerArgs(", '  File "', "("])
def test_a_megabyte_line_is_read_in_time(head: str, piece: str) -> None:
    engine = Findings(builtin())
    began = time.process_time()
    engine.feed("Traceback (most recent call last):")
    engine.feed(head + piece * (1_000_000 // len(piece)))
    engine.feed("ValueError: x")
    engine.end()
    assert engine.verdict() is not None
    assert time.process_time() - began < 3
