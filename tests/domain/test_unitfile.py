"""Unit files: nothing is lost, and single settings change in place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.domain import unitfile
from ddtree_console.domain.unitfile import join_drop_ins, parse, split_drop_ins

SAMPLE = """\
# by hand
[Unit]
Description = spaced

[Service]
Environment=A=1
Environment="B=two words" C=3
ExecStart=/bin/a \\
  # a comment inside
    --x 1 \\
    --y
; done
Environment=
Environment=D=4
[Install]
WantedBy=multi-user.target"""

PIECES = st.sampled_from(
    ["[Service]", "[Unit]", "[X-y", "A=1", "A=", "A = b c ", "ExecStart=/x \\", "  --f \\", "# c", "; c", "", " ",
     "no equals", "B=\\\\", "\ufeff", "=v", "\udc80=1", "A=\udcff", "\x1b[0m=2"]
)  # fmt: skip
TEXTS = st.text() | st.lists(PIECES | st.text(max_size=8), max_size=14).flatmap(
    lambda lines: st.sampled_from(["\n", "\r\n", "\r", "\0"]).map(lambda eol: eol.join(lines))
)


def test_effective_values() -> None:
    unit = parse(SAMPLE)
    assert unit.get("Unit", "Description") == "spaced"
    assert unit.values("Service", "Environment") == ("D=4",)
    assert unit.get("Service", "ExecStart") == "/bin/a      --x 1      --y"
    assert unit.get("Service", "Nothing") is None
    assert unit.values("Install", "WantedBy") == ("multi-user.target",)


def test_one_edit_keeps_every_other_byte() -> None:
    unit = parse(SAMPLE).with_setting("Unit", "Description", ("new",))
    assert unit.text == SAMPLE.replace("Description = spaced", "Description=new")
    assert parse(SAMPLE).with_setting("Install", "Alias", ("x.service",)).text == SAMPLE + "\nAlias=x.service\n"
    assert parse(SAMPLE).with_setting("Service", "ExecStart", ()).text.count("--x") == 0


def test_line_ends_are_kept() -> None:
    text = "[Service]\r\nUser=a\r\n"
    assert parse(text).with_setting("Service", "Group", ("g",)).text == "[Service]\r\nUser=a\r\nGroup=g\r\n"


def test_a_value_left_open_at_the_end_does_not_swallow_new_lines() -> None:
    for text in ("[Service]\nA=1 \\", "[Service]\nA=1 \\\n", "[Service]\nA=1 \\\n# c\n", "[Service]\nA=1 \\\n# c"):
        after = parse(text).with_setting("Service", "B", ("2",))
        assert (after.get("Service", "B"), after.get("Service", "A")) == ("2", "1")
        assert after.text.startswith(text)
        joined = parse(join_drop_ins(text, [("/x", "[Service]\nB=2")]))
        assert (joined.get("Service", "B"), joined.get("Service", "A")) == ("2", "1")


def test_missing_section_is_made() -> None:
    assert parse("").with_setting("Service", "User", ("a",)).text == "[Service]\nUser=a\n"
    assert parse("[Unit]").with_setting("Service", "User", ("a",)).text == "[Unit]\n\n[Service]\nUser=a\n"


@given(TEXTS)
def test_any_text_is_kept_and_entries_point_into_it(text: str) -> None:
    unit = parse(text)
    assert unit.text == text and unit.with_spans([]).text == text
    for entry in unit.entries:
        assert 0 <= entry.start < entry.end <= len(text)
        assert len(entry.places) == len(entry.value)
        for char, place in zip(entry.value, entry.places, strict=True):
            assert text[place] == char or (char == " " and text[place] == "\\")


@given(TEXTS, st.sampled_from(["A", "ExecStart", "New"]), st.lists(st.sampled_from(["1", "b c", "%h"]), max_size=3))
def test_setting_a_key_sets_it_and_nothing_else(text: str, key: str, values: list[str]) -> None:
    before = parse(text)
    after = before.with_setting("Service", key, values)
    others = [(e.section, e.key, e.value) for e in before.entries if (e.section, e.key) != ("Service", key)]
    assert [(e.section, e.key, e.value) for e in after.entries if (e.section, e.key) != ("Service", key)] == others
    assert after.values("Service", key) == tuple(values)


@given(TEXTS, st.lists(st.tuples(st.sampled_from(["/etc/a.d/1.conf", "/run/b c.conf"]), TEXTS), max_size=3))
def test_drop_ins_join_and_split(text: str, drop_ins: list[tuple[str, str]]) -> None:
    alone, parts = split_drop_ins(join_drop_ins(text, drop_ins))
    assert (alone, list(parts)) == (text, drop_ins)


@given(TEXTS, TEXTS)
def test_a_joined_drop_in_means_what_it_meant_alone(text: str, extra: str) -> None:
    def plain(t: str) -> list[tuple[str, str, str]]:
        return [(e.section, e.key, e.value) for e in parse(t).entries]

    extra = "[Service]\n" + extra
    assert plain(join_drop_ins(text, [("/x.conf", extra)])) == plain(text) + plain(extra)


@pytest.mark.parametrize("line", ["A=\udcff", "\udc80=1"])
def test_lines_that_are_not_utf8_are_no_entries(line: str) -> None:
    assert parse(f"[Service]\n{line}\n").entries == ()


def test_marks_are_comments() -> None:
    assert unitfile.DROP_IN.startswith("#")
