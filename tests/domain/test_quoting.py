"""Quoting against its own inverse and against the real systemd parser."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.domain import quoting
from tests.domain.real_systemd import splitter
from tests.domain.tricky import tricky_values

SPLIT = splitter()
needs_systemd = pytest.mark.skipif(SPLIT is None, reason="no libsystemd-shared of a known layout on this machine")


def _storable(text: str) -> bool:
    try:
        quoting.check_value(text)
    except ValueError:
        return False
    return True


VALUES = (st.text() | st.text("\\\"'%$; \t{}=#-ax0")).filter(_storable)


def _arg_back(text: str, dollar: bool = True) -> str:
    (word,) = quoting.words(text)
    assert text[word.start : word.end] == text
    value, literal = quoting.unquote_arg(word, dollar)
    assert literal
    return value


@given(VALUES, st.booleans())
def test_argument_round_trip(value: str, dollar: bool) -> None:
    quoted = quoting.quote_arg(value, dollar)
    assert "\n" not in quoted and "\r" not in quoted
    assert _arg_back(quoted, dollar) == value


@pytest.mark.parametrize("value", tricky_values())
def test_tricky_values_survive_both_ways(value: str) -> None:
    assert _arg_back(quoting.quote_arg(value)) == value
    (word,) = quoting.words(quoting.quote_env("NAME", value))
    assert quoting.unescape_percent(word.value) == (f"NAME={value}", True)


@given(st.lists(VALUES, max_size=5))
def test_many_words_stay_apart(values: list[str]) -> None:
    line = " ".join(map(quoting.quote_arg, values))
    assert [quoting.unquote_arg(w)[0] for w in quoting.words(line)] == values
    assert not any(line[w.start : w.end] == ";" for w in quoting.words(line))


@needs_systemd
@given(st.lists(VALUES, max_size=4))
def test_real_systemd_reads_what_we_write(values: list[str]) -> None:
    assert SPLIT is not None
    read = [w.decode() for w in SPLIT(" ".join(map(quoting.quote_arg, values)))]
    assert [w.replace("%%", "%").replace("$$", "$") for w in read] == values


@needs_systemd
@given(st.text("\\\"'abfnrtvsxuU0147 \t;é=", max_size=24))
def test_we_split_as_real_systemd_does(text: str) -> None:
    assert SPLIT is not None
    try:
        real = SPLIT(text)
    except ValueError:
        return  # systemd then tries again in its milder way, which is not exported with its flags
    ours = [w.value.encode("utf-8", "surrogateescape") for w in quoting.words(text)]
    assert ours == real


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("a\nb", "newline"),
        ("a\0b", "NUL"),
        ("a\ud800", "U\\+D800"),
        ("\ufffe", "U\\+FFFE"),
        ("\U0001ffff", "U\\+1FFFF"),
    ],
)
def test_what_no_unit_can_hold_is_refused(value: str, reason: str) -> None:
    for quote in (quoting.quote_arg, quoting.quote_program, quoting.quote_plain, lambda v: quoting.quote_env("A", v)):
        with pytest.raises(ValueError, match=reason):
            quote(value)


def test_a_newline_of_our_own_is_written_as_an_escape() -> None:
    assert quoting.quote_env("BAR", "{desc}% \n", newline=True) == '"BAR={desc}%% \\n"'


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "A=B", "é"])
def test_bad_variable_names(name: str) -> None:
    with pytest.raises(ValueError, match="name of an environment variable"):
        quoting.quote_env(name, "x")


@pytest.mark.parametrize("text", ["%i", "a%nb", "$FOO", "${FOO}", "x${FOO}y", "$"])
def test_what_systemd_expands_is_not_literal(text: str) -> None:
    (word,) = quoting.words(text)
    assert quoting.unquote_arg(word)[1] is False


@pytest.mark.parametrize(
    ("text", "value"), [("50%", "50%"), ("%%i", "%i"), ("a$b", "a$b"), ("$$FOO", "$FOO"), ("% x", "%")]
)
def test_what_systemd_leaves_alone_is_literal(text: str, value: str) -> None:
    assert quoting.unquote_arg(next(quoting.words(text))) == (value, True)


@pytest.mark.parametrize("program", ["", "-x", "@x", '/a"b', "/a'b", "/a\\b", "/a\tb"])
def test_programs_that_systemd_refuses(program: str) -> None:
    with pytest.raises(ValueError, match=r"systemd|absolute"):
        quoting.quote_program(program)


def test_milder_second_try_keeps_unknown_escapes() -> None:
    assert [w.value for w in quoting.words(r"C:\dir \q end\ ")] == [r"C:\dir", r"\q", "end\\ "]
    with pytest.raises(ValueError, match="unbalanced"):
        list(quoting.words('"open'))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_analyze_reads_the_program_as_written(tmp_path: Path) -> None:
    program = "/nowhere/a b; 50% é $x {1}"
    unit = tmp_path / "quote.service"
    unit.write_text(f"[Service]\nExecStart={quoting.quote_program(program)} x\n", "utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False, timeout=30
    )
    if "is not executable" not in done.stderr:
        pytest.skip(f"systemd-analyze does not verify here: {done.stderr[:200]}")
    assert f"Command {program} is not executable" in done.stderr
