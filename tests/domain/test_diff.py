"""Differences of profiles and texts, secrets masked."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.domain.diff import diff_profiles, unified
from ddtree_console.domain.spec import Profile, Secret, Speculative

OLD = Profile("a", model="/m", flags={"mem-fraction-static": 0.88, "x": True, "api-key": "canary-1"},
              env={"HF_TOKEN": "canary-2", "A": "1"}, args=("--api-key", "canary-3"))  # fmt: skip


def test_nothing_differs() -> None:
    assert diff_profiles(OLD, replace(OLD, name="b", extends="a")) == ()
    assert diff_profiles(OLD, replace(OLD, flags={**OLD.flags, "y": False}, speculative=Speculative())) == ()


def test_each_field_and_no_secret() -> None:
    new = replace(
        OLD, engine="wrapper", flags={"mem-fraction-static": 0.95, "api-key": "canary-4", "bs": [1, 2]},
        env={"HF_TOKEN": Secret("hub"), "A": ""}, args=("--api-key", "canary-5"), must=("x",), unit={"Nice": 5},
        speculative=Speculative("ddtree", True, 15, "/d"), verbatim="[Service]\n",
    )  # fmt: skip
    changes = diff_profiles(OLD, new)
    lines = [change.line() for change in changes]
    assert lines[:4] == [
        "profile engine sglang -> wrapper",
        "flag mem-fraction-static 0.88 -> 0.95",
        "flag x true -> (unset)",
        "flag api-key *** -> ***",
    ]
    assert "flag bs (unset) -> [1, 2]" in lines and "speculative budget (unset) -> 15" in lines
    assert "env HF_TOKEN *** -> {secret: hub}" in lines and 'env A 1 -> ""' in lines
    assert 'args args ["--api-key", "***"] -> ["--api-key", "***"]' in lines
    assert not any("canary" in line for line in lines)


def test_unified() -> None:
    assert unified("a\n", "a\n") == ()
    assert unified("a\nb\n", "a\nc") == (
        "--- on the host", "+++ to deploy", "@@ -1,2 +1,2 @@", " a", "-b", "+c", "\\ No newline at end of file",
    )  # fmt: skip
    lines = unified("X=1\nExecStart=/x --api-key canary\n", "X=2\nExecStart=/x --api-key canary\n")
    assert not any("canary" in line for line in lines) and "+X=2" in lines
    assert unified("--api-key canary1\n", "--api-key canary2\n") == ("(only secret values differ)",)


@given(st.text(), st.text())
def test_different_texts_show_a_difference(old: str, new: str) -> None:
    assert bool(unified(old, new)) == (old != new)
