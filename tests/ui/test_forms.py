"""The launch form without a screen: what is not touched stays exactly as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.domain.build import Build, BuildFlag
from ddtree_console.domain.engines.registry import get
from ddtree_console.domain.spec import Profile, Secret, Speculative
from ddtree_console.ui import forms

FIELDS = forms.fields(tuple(get("sglang").editor_flags()))
BASE = Profile(
    "base",
    model="/m",
    flags={"mem-fraction-static": 0.88, "api-key": "canary", "odd-flag": ["a b", "c"], "disable-cuda-graph": True},
    args=("--x", "a b", "--api-key", "canary"),
    env={"HF_TOKEN": "canary", "A": "x=y z", "S": Secret("name")},
    speculative=Speculative("ddtree", True, 15, "/d"),
)


def edited(**changes: str) -> forms.Built:
    """BASE with some texts changed; names with _ for blanks and dashes."""
    texts = forms.texts(BASE, FIELDS)
    by_name = {n.replace("-", "_").replace(" ", "_"): n for n in texts}
    return forms.build(BASE, FIELDS, {**texts, **{by_name[k]: v for k, v in changes.items()}})


def test_untouched_is_the_same_profile_and_no_secret_is_in_its_texts() -> None:
    assert edited().profile == BASE
    assert "canary" not in str(forms.texts(BASE, FIELDS))


@pytest.mark.parametrize(
    ("field", "text", "flag", "value"),
    [
        ("mem_fraction_static", "0.95", "mem-fraction-static", 0.95),
        ("context_length", " 32768 ", "context-length", 32768),
        ("disable_cuda_graph", "", "disable-cuda-graph", None),
        ("disable_piecewise_cuda_graph", "on", "disable-piecewise-cuda-graph", True),
    ],
)
def test_a_flag(field: str, text: str, flag: str, value: Any) -> None:
    built = edited(**{field: text}).profile
    assert built is not None and built.flags.get(flag) == value
    assert {k: v for k, v in built.flags.items() if k != flag} == {k: v for k, v in BASE.flags.items() if k != flag}


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("mem_fraction_static", "lots"),
        ("mem_fraction_static", "nan"),
        ("mem_fraction_static", "7"),
        ("context_length", "1.5"),
        ("disable_cuda_graph", "maybe"),
        ("speculative_kind", "magic"),
        ("speculative_draft", "a\nb"),
        ("environment", "no equals sign"),
        ("environment", "1A=x"),
        ("extra_arguments", "'open"),
        ("extra_arguments", "--api-key *** --new"),
    ],
)
def test_a_mistake_is_named_and_makes_no_profile(field: str, text: str) -> None:
    built = edited(**{field: text})
    assert built.profile is None and len(built.errors) == 1


def test_environment_keeps_hidden_values_and_names_secrets() -> None:
    built = edited(environment="HF_TOKEN=***\nB={secret: other}\nA=1").profile
    assert built is not None
    assert built.env == {"HF_TOKEN": "canary", "B": Secret("other"), "A": "1"}


def test_speculation_and_arguments() -> None:
    built = edited(speculative_kind="linear", speculative_budget="", extra_arguments="--y 'c d'").profile
    assert built is not None
    assert built.speculative == Speculative("linear", True, None, "/d")
    assert built.args == ("--y", "c d")


def test_flags_outside_the_editors_list_are_fields_as_the_build_knows_them() -> None:
    build = Build(
        source="ast",
        flags=(
            BuildFlag("quantization", kind="str", choices=("awq", "fp8"), help="of the weights"),
            BuildFlag("max-queued-requests", kind="int"),
        ),
    )
    profile = Profile("p", flags={"quantization": "awq", "cuda-graph-bs": [1, 2, 4], "trust-remote-code": True, "x": 1})
    fields = forms.fields(tuple(get("sglang").editor_flags()), profile, build, ("max-queued-requests", "quantization"))
    kinds = {f.name: f.kind for f in fields}
    assert len(kinds) == len(fields)
    assert {n: kinds[n] for n in (*profile.flags, "max-queued-requests")} == {
        "quantization": "str",
        "cuda-graph-bs": "list",
        "trust-remote-code": "bool",
        "x": "str",
        "max-queued-requests": "int",
    }
    assert next(f.help for f in fields if f.name == "quantization") == "of the weights; one of awq, fp8"
    texts = forms.texts(profile, fields)
    assert forms.build(profile, fields, texts).profile == profile
    edited = forms.build(profile, fields, {**texts, "cuda-graph-bs": "1 8 'a b'", "max-queued-requests": "9"}).profile
    assert edited is not None
    assert edited.flags == {**profile.flags, "cuda-graph-bs": [1, 8, "a b"], "max-queued-requests": 9}


def test_controls_in_a_profile_are_symbols_and_stay_as_they_are_when_untouched() -> None:
    odd = Profile("p", flags={"log-level": "a\x1b[31m"}, env={"A": "x\x1by"}, args=("--z", "\x07"))
    fields = forms.fields(tuple(get("sglang").editor_flags()), odd)
    texts = forms.texts(odd, fields)
    assert "\x1b" not in "".join(texts.values()) and "\x07" not in "".join(texts.values())
    assert forms.build(odd, fields, texts).profile == odd


def test_an_edited_profile_keeps_one_suffix() -> None:
    once = forms.renamed(Profile("p"), "shadow-small")
    assert (once.name, once.extends) == ("shadow-small-edited", "shadow-small")
    again = forms.renamed(once, once.name)
    assert (again.name, again.extends) == ("shadow-small-edited", "shadow-small")
    assert len(forms.renamed(Profile("p"), "x" * 64).name) == 64


@given(name=st.text(max_size=70))
def test_profile_names(name: str) -> None:
    if not forms.profile_name_error(name, ()):
        assert "/" not in name and not name.startswith(".") and name.isascii()
    assert forms.profile_name_error("taken", ("taken",))
