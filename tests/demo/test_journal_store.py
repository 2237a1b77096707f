"""Cutting output into entries, and giving them out as journald does."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.demo.journal_store import LINE_MAX, Journal, LineSplitter, json_value
from ddtree_console.demo.journalctl import terms_of
from ddtree_console.demo.options import Usage, parse


def cut(pieces: list[bytes]) -> list[tuple[bytes, str]]:
    """Entries of a stream that arrives in those pieces."""
    found: list[tuple[bytes, str]] = []
    splitter = LineSplitter(lambda line, line_break: found.append((line, line_break)))
    for piece in pieces:
        splitter.feed(piece)
    splitter.close()
    return found


def test_lines_nul_and_the_end_without_newline() -> None:
    assert cut([b"a\n\nb\0c\rd\r\ne"]) == [(b"a", ""), (b"b", "nul"), (b"c\rd\r", ""), (b"e", "eof")]


def test_a_long_line_comes_in_pieces() -> None:
    found = cut([b"x" * (2 * LINE_MAX + 5) + b"\n"])
    assert [(len(line), line_break) for line, line_break in found] == [
        (LINE_MAX, "line-max"),
        (LINE_MAX, "line-max"),
        (5, ""),
    ]


@given(st.lists(st.binary(max_size=20)), st.data())
def test_pieces_do_not_matter(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    assert cut(pieces) == cut([whole])
    joined = b"".join(line for line, _ in cut(pieces))
    assert joined == whole.replace(b"\n", b"").replace(b"\0", b"")


@given(st.binary(max_size=100))
def test_a_message_is_text_or_its_bytes(raw: bytes) -> None:
    value = json_value(raw, everything=True)
    assert (bytes(value) if isinstance(value, list) else str(value).encode()) == raw
    assert isinstance(value, list) == (not printable(raw))


def printable(raw: bytes) -> bool:
    """journald's utf8_is_printable."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return False
    return all(c in "\t\n" or not (ord(c) < 32 or 127 <= ord(c) < 160) for c in text)


def test_a_long_message_is_null_without_all() -> None:
    assert json_value(b"x" * 4096, everything=False) is None
    assert json_value(b"x" * 4096, everything=True) == "x" * 4096


def test_cursors_name_their_entry_also_after_a_vacuum() -> None:
    journal = Journal("0123456789abcdef" * 2, "h1")
    journal.boot = "b" * 32
    for number in range(10):
        journal.append(b"line %d" % number, 6, {"_PID": "7"})
    entries = list(journal.forward(0))
    cursors = [journal.cursor(entry) for entry in entries]
    assert len(set(cursors)) == 10
    assert [next(journal.forward(journal.seek(c))) for c in cursors] == entries
    journal.vacuum(keep=3)
    assert [e.message for e in journal.forward(journal.seek(cursors[2]))] == [b"line 7", b"line 8", b"line 9"]
    assert json.loads(journal.as_json(entries[0], True, None))["__CURSOR"] == cursors[0]
    only = json.loads(journal.as_json(entries[0], True, frozenset({"MESSAGE"})))
    assert set(only) == {"__CURSOR", "__REALTIME_TIMESTAMP", "__MONOTONIC_TIMESTAMP", "_BOOT_ID", "MESSAGE"}


def test_matches_and_alternatives() -> None:
    assert terms_of(["A=1", "A=2", "B=3", "+", "C=x=y"]) == [{"A": {"1", "2"}, "B": {"3"}}, {"C": {"x=y"}}]


def test_options_in_any_form_and_order() -> None:
    found = parse(["-fu", "x", "--lines=5", "word", "-oJ", "--", "-z"], ("unit", "o", "lines"), ("f",), {
        "f": "f",
        "u": "unit",
        "o": "o",
    })  # fmt: skip
    assert found.options == {"f": [""], "unit": ["x"], "lines": ["5"], "o": ["J"]}
    assert found.words == ["word", "-z"]
    for wrong in (["--nope"], ["-z"], ["--unit"]):
        try:
            parse(wrong, ("unit",), (), {})
        except Usage:
            continue
        raise AssertionError(wrong)
