"""systemd's own quoting of ExecStart= arguments and Environment= values, both directions.

Follows extract_first_word(), specifier_printf() and replace_env_argv() of systemd 252.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_WHITESPACE = " \t\n\r"
_BARE = re.compile(r"[A-Za-z0-9_@%+=:,./$-]+\Z")
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
_SIMPLE.update({c: c for c in "\\\"'"})
_NUMERIC = {"x": 2, "u": 4, "U": 8}
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True)
class Word:
    """One word of a setting. value: unquoted, specifiers and `$` not yet looked at; start, end: its source text."""

    value: str
    start: int
    end: int
    quoted: bool = False


def check_value(text: str, what: str = "value") -> str:
    """The text itself; ValueError for what no unit file can carry: newline, NUL, lone surrogates, noncharacters."""
    for char in text:
        code = ord(char)
        if char == "\n":
            raise ValueError(f"{what} holds a newline; a unit file's value must be one line")
        if char == "\0":
            raise ValueError(f"{what} holds a NUL character")
        # systemd's utf8_is_valid() drops the whole line for these
        if 0xD800 <= code <= 0xDFFF or 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE:
            raise ValueError(f"{what} holds U+{code:04X}, which systemd refuses as text")
    return text


def _escape(char: str) -> str:
    if char in '\\"':
        return "\\" + char
    if char == "\t":
        return "\\t"
    if char == "\n":
        return "\\n"
    if char == "\r":
        return "\\r"
    return f"\\x{ord(char):02x}" if ord(char) < 0x20 or ord(char) == 0x7F else char


def _quoted(text: str) -> str:
    return '"' + "".join(map(_escape, text)) + '"'


def quote_arg(value: str, dollar: bool = True) -> str:
    """One argument as it stands in ExecStart=. dollar False: the command has the `:` prefix, `$` is plain there."""
    text = check_value(value, "argument").replace("%", "%%")
    if dollar:
        text = text.replace("$", "$$")
    return text if _BARE.match(text) else _quoted(text)


def quote_program(value: str) -> str:
    """The program of ExecStart=. systemd does not expand `$` there, and reads `@-:+!|` at its start as prefixes."""
    check_value(value, "program")
    if not value or value[0] in "@-:+!|":
        raise ValueError(f"program {value!r} cannot be started by systemd: give its absolute path")
    if any(c in "\"'\\\x7f" or ord(c) < 0x20 for c in value):
        raise ValueError(f"program {value!r} holds quotes, a backslash or control characters, which systemd refuses")
    text = value.replace("%", "%%")
    return text if _BARE.match(text) else _quoted(text)


def quote_env(name: str, value: str, newline: bool = False) -> str:
    """One assignment for Environment=, always in quotes. newline True allows one (as `\\n`): for our own values."""
    if not _ENV_NAME.match(name):
        raise ValueError(f"{name!r} is no name of an environment variable")
    check_value(value.replace("\n", "") if newline else value, f"environment {name}")
    return _quoted(f"{name}={value}".replace("%", "%%"))


def quote_plain(value: str, what: str = "value") -> str:
    """A setting that systemd reads to the end of its line, without quotes: paths, names."""
    if check_value(value, what) != value.strip() or value.endswith("\\"):
        raise ValueError(f"{what} {value!r} cannot be written in a unit: blanks at its ends or a backslash last")
    if any(ord(c) < 0x20 for c in value):
        raise ValueError(f"{what} {value!r} holds control characters")
    return value.replace("%", "%%")


def _cunescape(text: str, at: int) -> tuple[bytes, int] | None:
    """The bytes of the escape whose letter stands at `at`, and the place behind it; None when systemd knows none."""
    char = text[at]
    if char in _SIMPLE:
        return _SIMPLE[char].encode(), at + 1
    width, base = (_NUMERIC[char], 16) if char in _NUMERIC else (3, 8)
    begin = at + 1 if base == 16 else at
    digits = text[begin : begin + width]
    if len(digits) != width or not all(c in "0123456789abcdefABCDEF"[: 22 if base == 16 else 8] for c in digits):
        return None
    code = int(digits, base)
    if code == 0 or (width == 3 and code > 255) or code > 0x10FFFF:
        return None
    if char == "x" or base == 8:
        return bytes([code]), begin + width
    try:
        return check_value(chr(code)).encode(), begin + width
    except ValueError:
        return (b"\n", begin + width) if code == 10 else None


def _word(text: str, at: int, relax: bool) -> tuple[str, int, bool]:
    """The word that begins at `at`, the place behind it, and whether it was quoted; ValueError as systemd refuses."""
    out, quote, quoted = bytearray(), "", False
    while at < len(text):
        char = text[at]
        if char == "\\":
            got = _cunescape(text, at + 1) if at + 1 < len(text) else None
            if got:
                out += got[0]
                at = got[1]
                continue
            if not relax or (at + 1 == len(text) and quote):
                raise ValueError(f"unknown escape {text[at : at + 2]!r}")
            out += text[at : at + 2].encode("utf-8", "surrogateescape")
            at += 2
            continue
        if quote:
            if char == quote:
                quote = ""
            else:
                out += char.encode("utf-8", "surrogateescape")
        elif char in "\"'":
            quote, quoted = char, True
        elif char in _WHITESPACE:
            break
        else:
            out += char.encode("utf-8", "surrogateescape")
        at += 1
    if quote:
        raise ValueError("unbalanced quotes")
    return out.decode("utf-8", "surrogateescape"), min(at, len(text)), quoted


def words(text: str) -> Iterator[Word]:
    """The words of a setting; ValueError for unbalanced quotes (systemd then ignores the line)."""
    at = 0
    while True:
        while at < len(text) and text[at] in _WHITESPACE:
            at += 1
        if at >= len(text):
            return
        try:
            value, end, quoted = _word(text, at, relax=False)
        except ValueError:
            # systemd's second, milder try keeps unknown escapes
            value, end, quoted = _word(text, at, relax=True)
        yield Word(value, at, end, quoted)
        at = end


def unescape_percent(text: str) -> tuple[str, bool]:
    """(value, literal): `%%` is `%`; literal False where a specifier such as %i is left in the value."""
    literal = re.search(r"%[A-Za-z]", text.replace("%%", "")) is None
    return re.sub("%%", "%", text) if literal else text, literal


def unescape_dollar(word: str) -> tuple[str, bool]:
    """(value, literal) of an ExecStart argument: `$$` is `$`; literal False where a variable is expanded."""
    if word[:1] == "$" and word[1:2] not in ("{", "$"):
        return word, False
    if "${" in word.replace("$$", ""):
        return word, False
    return word.replace("$$", "$"), True


def unquote_arg(word: Word, dollar: bool = True) -> tuple[str, bool]:
    """(value, literal) of an argument; a word that is not literal must be kept as it stands."""
    value, literal = unescape_percent(word.value)
    if not dollar or not literal:
        return value, literal
    return unescape_dollar(value)
