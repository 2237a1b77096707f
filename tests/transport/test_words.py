"""Command lines of fixed words, and lines out of any chunks."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.transport.address import reachable
from ddtree_console.transport.words import Lines, command_line


@given(st.lists(st.text(max_size=12), max_size=4))
def test_a_command_line_means_to_a_shell_what_it_says_or_is_refused(argv: list[str]) -> None:
    try:
        line = command_line(argv)
    except ValueError:
        return
    assert shlex.split(line) == argv


@pytest.mark.parametrize("word", ["", "a b", "$HOME", "~", "a;b", "a\nb", "é", "*", "`x`", "a\x00", "{a}"])
def test_what_is_no_fixed_word(word: str) -> None:
    with pytest.raises(ValueError, match="fixed word"):
        command_line(["ok", word])


def test_the_words_we_use() -> None:
    words = ["sudo", "-n", "python3", "-I", "-B", "/var/lib/x/bin/ab12", "--roots=/a/b.json", "tx", "a@b.service"]
    assert command_line(words) == " ".join(words)
    with pytest.raises(ValueError, match="empty"):
        command_line([])


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_chunks_do_not_matter(chunks: list[bytes]) -> None:
    lines = Lines()
    found = [line for chunk in chunks for line in lines.feed(chunk)] + list(lines.end())
    whole = b"".join(chunks)
    expected = whole.split(b"\n")
    assert found == (expected if expected[-1] else expected[:-1])


@given(st.binary(min_size=1, max_size=60).filter(lambda b: b"\n" not in b), st.integers(1, 10))
def test_a_line_above_the_cap_is_cut_visibly(line: bytes, size: int) -> None:
    lines = Lines(cap=20)
    chunks = [line[i : i + size] for i in range(0, len(line), size)] + [b"\nnext\n"]
    first, second = [found for chunk in chunks for found in lines.feed(chunk)]
    assert second == b"next"
    lost = len(line) - 20
    assert first == (line if lost <= 0 else line[:20] + b" [cut: %d more bytes]" % lost)


def test_any_addresses_mean_loopback() -> None:
    assert [reachable(a) for a in ("", "0.0.0.0", "::", "::ffff:10.0.0.1", "fe80::1")] == [
        "127.0.0.1",
        "127.0.0.1",
        "::1",
        "10.0.0.1",
        "fe80::1",
    ]
