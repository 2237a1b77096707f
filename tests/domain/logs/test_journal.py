"""Journal JSON as journalctl really writes it, and as a broken pipe leaves it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.domain.journal import Entry, Joiner, parse_entry, parse_marker


def line(**fields: object) -> bytes:
    return json.dumps({"__CURSOR": "s=1;i=2", "__REALTIME_TIMESTAMP": "1795962301303070", **fields}).encode()


def test_a_program_line() -> None:
    entry = parse_entry(
        line(
            MESSAGE="hello",
            _SYSTEMD_UNIT="a.service",
            _SYSTEMD_INVOCATION_ID="5b7a",
            PRIORITY="3",
            _PID="77",
            SYSLOG_IDENTIFIER="py",
        )
    )
    assert entry == Entry("s=1;i=2", 1795962301.30307, "a.service", "hello", 3, "5b7a", 77, "py", "")


def test_systemds_own_line_belongs_to_the_unit_it_is_about() -> None:
    entry = parse_entry(
        line(MESSAGE="Started", UNIT="a.service", _SYSTEMD_UNIT="init.scope", INVOCATION_ID="5b7a", _PID="1")
    )
    assert entry is not None
    assert (entry.unit, entry.invocation) == ("a.service", "5b7a")


def test_bytes_null_and_lists() -> None:
    bar = parse_entry(line(MESSAGE=list(b"\r 50%\r100%\xff")))
    assert bar is not None and bar.text == "\r 50%\r100%�"
    too_long = parse_entry(line(MESSAGE=None))
    assert too_long is not None and "not delivered" in too_long.text
    twice = parse_entry(line(MESSAGE=["a", "b"]))
    assert twice is not None and twice.text == "a\nb"


def test_torn_lines_and_markers_are_no_entries() -> None:
    assert parse_entry(line(MESSAGE="x")[:-5]) is None
    assert parse_entry(b"") is None
    assert parse_entry(b"[1,2]") is None
    assert parse_entry(b'{"_ddtree":"gap","why":"vacuumed"}') is None
    assert parse_marker(b'{"_ddtree":"gap","why":"vacuumed"}') == ("gap", "vacuumed")
    assert parse_marker(b'{"_ddtree":"error","text":"no"}') == ("error", "no")
    assert parse_marker(line(MESSAGE="x")) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["MESSAGE", "PRIORITY", "_PID", "__CURSOR", "__REALTIME_TIMESTAMP", "UNIT", "_LINE_BREAK", "INVOCATION_ID"]
)


@given(st.dictionaries(FIELDS, JSON))
def test_any_object_parses_or_is_refused(fields: dict[str, object]) -> None:
    entry = parse_entry(json.dumps(fields).encode())
    assert entry is None or (
        isinstance(entry.text, str) and isinstance(entry.pid, int) and isinstance(entry.when, float)
    )


@given(st.binary())
def test_any_bytes_never_raise(raw: bytes) -> None:
    parse_entry(raw)
    parse_marker(raw)


def test_deep_nesting_and_huge_numbers_never_raise() -> None:
    parse_entry(b'{"MESSAGE":' + b"[" * 100_000)
    parse_entry(b'{"MESSAGE":"x","__REALTIME_TIMESTAMP":"' + b"9" * 500 + b'"}')
    parse_entry(b'{"MESSAGE":"x","_PID":' + b"9" * 5000 + b"}")


def test_pieces_of_a_long_line_are_joined_under_the_last_cursor() -> None:
    joiner = Joiner()
    a, b, c = (
        Entry(cursor=str(i), unit="u", pid=5, text=t, line_break=k)
        for i, (t, k) in enumerate([("ab", "line-max"), ("cd", "line-max"), ("e", "")])
    )
    other = Entry(cursor="9", unit="u", pid=6, text="other")
    assert joiner.feed(a) is None
    assert joiner.feed(other) == other
    assert joiner.feed(b) is None
    whole = joiner.feed(c)
    assert whole is not None and (whole.text, whole.cursor) == ("abcde", "2")
    assert list(joiner.flush()) == []


def test_a_nul_is_put_back_and_flush_gives_what_waits() -> None:
    joiner = Joiner()
    assert joiner.feed(Entry(text="a", line_break="nul")) is None
    whole = joiner.feed(Entry(text="b"))
    assert whole is not None and whole.text == "a\0b"
    assert joiner.feed(Entry(text="half", line_break="line-max")) is None
    assert [e.text for e in joiner.flush()] == ["half"]


@given(st.lists(st.tuples(st.integers(0, 2), st.text(max_size=3), st.sampled_from(["", "line-max", "nul", "eof"]))))
def test_joining_loses_no_text(pieces: list[tuple[int, str, str]]) -> None:
    joiner = Joiner()
    out: list[Entry] = []
    for pid, text, kind in pieces:
        whole = joiner.feed(Entry(pid=pid, text=text, line_break=kind))
        if whole is not None:
            out.append(whole)
    out.extend(joiner.flush())
    for pid in range(3):
        got = "".join(e.text for e in out if e.pid == pid).replace("\0", "")
        assert got == "".join(t for p, t, _ in pieces if p == pid).replace("\0", "")
