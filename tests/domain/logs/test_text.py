"""Nothing that a host sends may act on the operator's terminal or hide from the eye."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.domain.text import decode_message, last_bar, visible

ANY_TEXT = st.text(st.characters())  # lone surrogates included


def test_escape_sequences_become_symbols() -> None:
    assert visible("\x1b[31mred\x1b[0m") == "␛[31mred␛[0m"
    assert visible("\x1b]52;c;aGk=\x07") == "␛]52;c;aGk=␇"
    assert visible("\x1b]8;;http://x\x1b\\link") == "␛]8;;http://x␛\\link"
    assert visible("a\x00b\rc\nd\x7f") == "a␀b␍c␊d␡"


@pytest.mark.parametrize(
    "code", [0x85, 0x9B, 0xAD, 0x200B, 0x200D, 0x200F, 0x202E, 0x2066, 0x2069, 0x061C, 0xFEFF, 0x2028]
)
def test_invisible_and_bidi_characters_are_named(code: int) -> None:
    assert visible(f"a{chr(code)}b") == f"a‹U+{code:04X}›b"


def test_tabs_become_spaces_and_brackets_stay() -> None:
    assert visible("a\tb[bold]") == "a   b[bold]"


@given(ANY_TEXT)
def test_visible_text_has_no_control_character_and_can_be_encoded(text: str) -> None:
    shown = visible(text)
    shown.encode("utf-8")
    for char in shown:
        assert unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(char) not in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    assert visible(shown) == shown


@given(ANY_TEXT, st.integers(0, 60))
def test_a_cut_never_exceeds_its_columns(text: str, width: int) -> None:
    cut = visible(text, width)
    columns = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in cut)
    assert columns <= width
    whole = visible(text)
    assert cut == whole or not width or cut.endswith("…")


def test_a_cut_is_marked_and_counts_wide_characters() -> None:
    assert visible("abcdef", 4) == "abc…"
    assert visible("abcd", 4) == "abcd"
    assert visible("日本語", 5) == "日本…"
    assert visible("日本語", 6) == "日本語"
    assert visible("\x1b" * 1_000_000, 5) == "␛␛␛␛…"


def test_a_bar_shows_its_last_state() -> None:
    assert last_bar("\r  0%\r 50%\r100%") == "100%"
    assert last_bar("plain") == "plain"
    assert last_bar("\r\r") == ""


def test_journal_messages_of_every_kind() -> None:
    assert decode_message("text") == "text"
    assert decode_message([27, 91, 109, 255]) == "\x1b[m�"
    assert decode_message(["a", [98, 99]]) == "a\nbc"
    assert "not delivered" in decode_message(None)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | ANY_TEXT,
    lambda x: st.lists(x) | st.dictionaries(st.text(), x),
)


@given(JSON)
def test_a_message_of_any_shape_is_text(raw: object) -> None:
    assert isinstance(decode_message(raw), str)
