"""Text of a stream of tokens: the parts make the whole, characters are whole, stop texts never show."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_kernels.decode.text import TextStream


def decode(ids: Sequence[int]) -> str:
    """A token is a byte."""
    return bytes(ids).decode("utf-8", "replace")


@given(st.text(max_size=60), st.lists(st.integers(0, 5), max_size=30))
def test_parts_make_the_text_and_hold_whole_characters(text: str, sizes: list[int]) -> None:
    stream, data = TextStream(decode), list(text.encode("utf-8", "replace"))
    parts = []
    for size in sizes:
        parts.append(stream.feed(data[:size]))
        del data[:size]
    assert "�" not in "".join(parts) or "�" in text
    parts += [stream.feed(data), stream.finish()]
    assert "".join(parts) == text.encode("utf-8", "replace").decode() == stream.text


@given(st.text("abc", max_size=40), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3), st.integers(1, 5))
def test_a_stop_text_ends_it_and_no_part_of_it_shows(text: str, stops: list[str], size: int) -> None:
    stream, given_out = TextStream(decode, stops), ""
    for at in range(0, len(text), size):
        given_out += stream.feed(text[at : at + size].encode())
        assert not any(stop in given_out for stop in stops)
        if stream.stopped:
            break
    given_out += stream.finish()
    found = [text.index(stop) for stop in stops if stop in text]
    if size == 1 and found:  # token by token it ends at the stop text that is complete first
        end = min(text.index(stop) + len(stop) for stop in stops if stop in text)
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        assert stream.stopped in ending and given_out == text[: end - max(map(len, ending))]
    assert (stream.stopped is None) == (not found)
    assert text.startswith(given_out) and (found or given_out == text)


def test_half_a_character_at_the_end_becomes_a_replacement() -> None:
    stream = TextStream(decode)
    assert stream.feed("aé".encode()[:2]) == ""
    assert stream.finish() == "a�"


@pytest.mark.parametrize(("text", "shown"), [("one END", "one "), ("one EN", "one EN"), ("ENEND", "EN")])
def test_what_may_become_a_stop_text_is_held_back(text: str, shown: str) -> None:
    stream, out = TextStream(decode, ["END"]), ""
    for letter in text:
        out += stream.feed(letter.encode())
    assert out + stream.finish() == shown
