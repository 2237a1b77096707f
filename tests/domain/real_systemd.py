"""The machine's own systemd as a judge of our quoting: its shared library's parser, called directly."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

UNQUOTE_CUNESCAPE = (1 << 5) | (1 << 1)


def splitter() -> Callable[[str], list[bytes]] | None:
    """systemd's extract_first_word() over a whole setting; None where the library is missing or of another layout."""
    for path in Path("/usr/lib").glob("*/systemd/libsystemd-shared-25[2-7].so"):
        try:
            extract = ctypes.CDLL(str(path)).extract_first_word
        except (OSError, AttributeError):
            continue
        extract.argtypes = [
            ctypes.POINTER(ctypes.c_char_p),
            ctypes.POINTER(ctypes.c_char_p),
            ctypes.c_char_p,
            ctypes.c_int,
        ]
        extract.restype = ctypes.c_int

        def split(text: str, extract: Any = extract) -> list[bytes]:
            at = ctypes.c_char_p(text.encode("utf-8", "surrogateescape"))
            out: list[bytes] = []
            while True:
                word = ctypes.c_char_p()
                status = extract(ctypes.byref(at), ctypes.byref(word), None, UNQUOTE_CUNESCAPE)
                if status < 0:
                    raise ValueError(status)
                if status == 0:
                    return out
                out.append(word.value or b"")

        if split('a "b c"\\x41') == [b"a", b"b cA"]:
            return split
    return None
