"""Text from a host, made safe to show: no control character reaches a terminal, and nothing hides."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

MARK = "…"
NOT_DELIVERED = "(text not delivered: longer than 4096 bytes)"

# C0, DEL, C1, bidi controls, zero-width and other invisible characters, line separators, tags, lone surrogates
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def _symbol(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if 0xD800 <= code <= 0xDFFF:
        return "�"
    return f"‹U+{code:04X}›"


def _wide(char: str) -> int:
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _cut(text: str, width: int) -> str:
    """At most `width` terminal columns, the last one a mark where something was cut off."""
    if len(text) <= width and text.isascii():
        return text
    if text.isascii():
        return text[: width - 1] + MARK
    columns = 0
    for i, char in enumerate(text):
        columns += _wide(char)
        if columns > width:
            head = text[:i]
            while head and sum(map(_wide, head)) > width - 1:
                head = head[:-1]
            return head + MARK
    return text


def visible(text: str, width: int | None = None) -> str:
    """`text` with every control, bidi and invisible character as a visible symbol (ESC is ␛), tabs as spaces.

    width: cut at that many columns with a mark; a megabyte line costs no more than a short one then.
    """
    if width is not None:
        if width < 1:
            return ""
        # every character takes a column or more, so what lies beyond cannot be seen
        text = text[: width + 1]
    if "\t" in text:
        text = text.expandtabs(4) if "\n" not in text and "\r" not in text else text.replace("\t", "    ")
    if _UNSAFE.search(text) is not None:
        text = _UNSAFE.sub(_symbol, text)
    return text if width is None else _cut(text, width)


def last_bar(text: str) -> str:
    """What a terminal would show of a progress bar at its end: the last non-empty piece between carriage returns."""
    if "\r" not in text:
        return text
    pieces = [piece for piece in text.split("\r") if piece.strip()]
    return pieces[-1] if pieces else ""


def _piece(raw: Any) -> str:
    if isinstance(raw, str):
        return raw
    if isinstance(raw, list):
        numbers = [n & 0xFF for n in raw if isinstance(n, int)]
        if len(numbers) == len(raw):
            return bytes(numbers).decode("utf-8", "replace")
        return "\n".join(_piece(part) for part in raw)
    return NOT_DELIVERED if raw is None else str(raw)


def decode_message(raw: Any) -> str:
    """A journal field as text: a string, a list of byte numbers, null (too long, asked without --all), or, for a
    field that occurs more than once, a list of those (joined by newlines). Never raises."""
    return _piece(raw)
