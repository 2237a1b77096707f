"""A remedy made on a profile: exact where a value was computed, a step that is said to be a guess where none was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.domain.findings.apply import apply, make
from ddtree_console.domain.findings.types import Edit, Remedy, from_json
from ddtree_console.domain.spec import Profile, Secret, Speculative

BASE = Profile(
    "shadow-small",
    model="/models/qwen3.6-27b",
    flags={"mem-fraction-static": 0.95, "context-length": 32768, "max-running-requests": 4, "disable-cuda-graph": True},
    args=("--log-level", "info", "--chunked-prefill-size", "-1", "--page-size=1", "--enable-metrics"),
    env={"HF_TOKEN": Secret("hf"), "CUDA_HOME": "/usr/local/cuda", "OMP_NUM_THREADS": "8"},
    speculative=Speculative("ddtree", True, 15, "/models/draft"),
    unit={"MemoryMax": "64G"},
)


def one(target: str, name: str, op: str, value: Any = None) -> Remedy:
    """A remedy of one edit."""
    return Remedy("do it", (Edit(target, name, op, value),))


@pytest.mark.parametrize(
    ("name", "op", "value", "after"),
    [
        ("mem-fraction-static", "lower", 0.82, 0.82),
        ("mem_fraction_static", "lower", 0.82, 0.82),
        ("--max-running-requests", "raise", 8.0, 8),
        ("disable-piecewise-cuda-graph", "set", True, True),
        ("disable-piecewise-cuda-graph", "set", None, True),
        ("kv-cache-dtype", "set", "fp8_e5m2", "fp8_e5m2"),
        ("disable-cuda-graph", "remove", None, None),
        ("disable-cuda-graph", "set", False, None),
    ],
)
def test_a_flag_takes_the_computed_value(name: str, op: str, value: Any, after: Any) -> None:
    made = make(BASE, one("flag", name, op, value))
    flag = name.lstrip("-").replace("_", "-")
    assert made.profile.flags.get(flag) == after
    assert {k: v for k, v in made.profile.flags.items() if k != flag} == {
        k: v for k, v in BASE.flags.items() if k != flag
    }
    assert (made.guesses, made.problems) == ((), ())


@pytest.mark.parametrize(
    ("name", "op", "after"),
    [
        ("mem-fraction-static", "lower", 0.9),
        ("max-running-requests", "lower", 2),
        ("context-length", "raise", 65536),
    ],
)
def test_where_nothing_was_computed_one_step_is_taken_and_called_a_guess(name: str, op: str, after: Any) -> None:
    made = make(BASE, one("flag", name, op))
    assert made.profile.flags[name] == after
    assert len(made.guesses) == 1 and name in made.guesses[0] and "guess" in made.guesses[0]


@pytest.mark.parametrize(
    ("remedy", "says"),
    [
        (one("flag", "mem-fraction-static", "raise"), "as far as a step goes"),
        (one("flag", "mem-fraction-static", "raise", 0.31), "0.95 already"),
        (one("flag", "max-running-requests", "lower", 16), "at most 16"),
        (one("flag", "max-mamba-cache-size", "lower"), "choose a value"),
        (one("flag", "kv-cache-dtype", "raise", "much"), "no number"),
        (one("flag", "context-length", "raise", 10**400), "no number"),
        (one("profile", "speculative.budget", "set", True), "whole number"),
        (one("env", "NEW", "set"), "names no value"),
        (one("profile", "port", "set", 1), "no such entry"),
        (one("profile", "speculative.budget", "set", "x"), "whole number"),
        (one("moon", "x", "set", 1), "neither flag"),
        (one("flag", "x", "explode", 1), "not a change"),
        (one("flag", "--", "set", 1), "names nothing"),
        (one("flag", "x y", "set", 1), "no name"),
        (one("env", "A\x1b[31m", "set", "1"), "no name"),
        (one("flag", "log-level", "set", "a\x1b]52;c;x"), "not printable"),
        (one("flag", "log-level", "set", "x" * 5000), "too long"),
        (one("profile", "model", "set", "/m\n[Service]"), "not printable"),
    ],
)
def test_what_cannot_be_made_is_said_and_changes_nothing(remedy: Remedy, says: str) -> None:
    made = make(BASE, remedy)
    assert made.profile == BASE
    assert len(made.problems) == 1 and says in made.problems[0]


def test_a_default_of_the_build_is_where_a_step_starts() -> None:
    made = make(BASE, one("flag", "max-queued-requests", "lower"), {"max-queued-requests": 48})
    assert made.profile.flags["max-queued-requests"] == 24
    assert make(BASE, one("flag", "tp-size", "raise")).profile.flags["tp-size"] == 2


@pytest.mark.parametrize(
    ("name", "op", "value", "args"),
    [
        ("log-level", "set", "debug", ("--log-level", "debug", *BASE.args[2:])),
        ("chunked-prefill-size", "set", 2048, (*BASE.args[:3], "2048", *BASE.args[4:])),
        ("page-size", "raise", 16, (*BASE.args[:4], "--page-size", "16", "--enable-metrics")),
        ("enable-metrics", "remove", None, BASE.args[:-1]),
        ("log-level", "remove", None, BASE.args[2:]),
    ],
)
def test_an_argument_is_changed_where_it_stands(name: str, op: str, value: Any, args: tuple[str, ...]) -> None:
    made = apply(BASE, one("flag", name, op, value))
    assert made.args == args and made.flags == BASE.flags


@pytest.mark.parametrize(
    ("target", "name", "op", "value", "budget"),
    [
        ("flag", "speculative-num-draft-tokens", "lower", 8, 7),
        ("flag", "speculative-ddtree-budget", "lower", 8, 8),
        ("flag", "speculative-num-draft-tokens", "lower", None, 7),
        ("profile", "speculative.budget", "lower", None, 7),
        ("profile", "speculative.budget", "set", 31, 31),
    ],
)
def test_a_flag_that_the_intent_spells_changes_the_intent(
    target: str, name: str, op: str, value: Any, budget: int
) -> None:
    made = apply(BASE, one(target, name, op, value))
    assert made.speculative == Speculative("ddtree", True, budget, "/models/draft")
    assert made.flags == BASE.flags


def test_environment_unit_and_model() -> None:
    remedy = Remedy(
        "all of it",
        (
            Edit("env", "CUDA_HOME", "set", "/usr/local/cuda-13.0"),
            Edit("env", "OMP_NUM_THREADS", "raise", 16),
            Edit("env", "HF_TOKEN", "remove"),
            Edit("unit", "MemoryMax", "remove"),
            Edit("unit", "LimitMEMLOCK", "set", "infinity"),
            Edit("profile", "python", "set", "/opt/venv/bin/python3"),
            Edit("profile", "speculative.draft", "set", "/models/draft-2"),
            Edit("profile", "speculative.kind", "set", "linear"),
        ),
    )
    made = make(BASE, remedy)
    assert made.problems == ()
    assert made.profile.env == {"CUDA_HOME": "/usr/local/cuda-13.0", "OMP_NUM_THREADS": "16"}
    assert made.profile.unit == {"LimitMEMLOCK": "infinity"}
    assert made.profile.python == "/opt/venv/bin/python3"
    assert made.profile.speculative == Speculative("linear", True, 15, "/models/draft-2")


def test_without_an_intent_the_flag_is_a_flag() -> None:
    plain = Profile("p", speculative=Speculative("none"))
    assert apply(plain, one("flag", "speculative-num-draft-tokens", "set", 8)).flags == {
        "speculative-num-draft-tokens": 8
    }


def test_a_unit_adopted_word_for_word_is_left_alone() -> None:
    adopted = Profile("kept", verbatim="[Service]\nExecStart=/bin/true\n")
    made = make(adopted, one("flag", "mem-fraction-static", "lower"))
    assert made.profile == adopted and "adopted" in made.problems[0]


_VALUE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
_NAMES = st.sampled_from(
    [*BASE.flags, *BASE.env, "page-size", "log-level", "speculative.budget", "model", "speculative"]
)
_EDIT = st.fixed_dictionaries(
    {
        "target": st.sampled_from(["flag", "env", "unit", "profile"]) | st.text(max_size=6),
        "name": _NAMES | st.text(max_size=12),
        "op": st.sampled_from(["set", "remove", "raise", "lower"]) | st.text(max_size=6),
        "value": _VALUE,
    }
)


@given(edits=st.lists(_EDIT, max_size=4))
def test_any_finding_of_a_host_gives_a_profile_and_leaves_ours_alone(edits: list[dict[str, Any]]) -> None:
    before = repr(BASE)
    finding = from_json({"slug": "x", "remedies": [{"text": "t", "edits": edits}]})
    assert finding is not None
    made = make(BASE, finding.remedies[0])
    assert made.profile.name == BASE.name and repr(BASE) == before
    assert len(made.problems) + len(made.guesses) <= len(edits)
