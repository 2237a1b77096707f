"""Versions against pins, held against the packaging library's own judgement."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_console.domain.build import Build
from ddtree_console.domain.build_pins import mismatches, satisfies

# pip and pytest bring it; the product itself does without
packaging = pytest.importorskip("packaging.specifiers")

NUMBERS = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(lambda n: ".".join(map(str, n)))
END = st.sampled_from(["", "rc1", "a2", "b0", ".post1", ".post12", ".dev3", "rc1.post2", ".post1.dev4"])
LOCAL = st.sampled_from(["", "+cu128", "+cu130"])
SIGN = st.sampled_from(["==", "!=", "<=", ">="])


@settings(max_examples=400, deadline=None)
@given(NUMBERS, END, LOCAL, st.lists(st.tuples(SIGN, NUMBERS, END), min_size=1, max_size=2))
def test_as_the_packaging_library_judges(numbers: str, end: str, local: str, pins: list[tuple[str, str, str]]) -> None:
    version, wanted = numbers + end + local, ",".join(sign + pin + tail for sign, pin, tail in pins)
    real = packaging.SpecifierSet(wanted, prereleases=True).contains(version)
    assert satisfies(version, wanted) == real, (version, wanted)


@pytest.mark.parametrize(
    ("version", "wanted", "met"),
    [
        ("0.14.3", "<0.15,>=0.14.1", True),
        ("0.17.2", "<0.15,>=0.14.1", False),
        ("2.11.0+cu128", "==2.11.0", True),
        ("2.11.0", "==2.11.*", True),
        ("2.12.0", "==2.11.*", False),
        ("1.4.9", "~=1.4.2", True),
        ("1.5.0", "~=1.4.2", False),
        ("0.4.2.post2", "==0.4.2", False),
        ("not a version", "==1", None),
        ("1", "", None),
        ("1", "@ https://example.org/x.whl", None),
    ],
)
def test_single_pins(version: str, wanted: str, met: bool | None) -> None:
    assert satisfies(version, wanted) is met


def test_what_is_absent_or_another_version() -> None:
    pins = {"torch": "==2.11.0", "sglang-kernel": "==0.4.2.post2", "transformers": "==5.6.0", "triton": "@ file"}
    versions = {"torch": "2.11.0+cu128", "transformers": "5.7.0", "triton": "3.9.0"}
    found = mismatches(Build(pins=pins, versions=versions))
    assert [m.text for m in found] == [
        "sglang-kernel is not installed, wanted ==0.4.2.post2",
        "transformers 5.7.0, wanted ==5.6.0",
    ]
