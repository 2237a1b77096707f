"""Lines as SGLang writes them: a time in brackets, then the text, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def say(text: str) -> None:
    """One line; whatever it holds, it stays one."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    line = text.replace("\n", " ").replace("\r", " ")
    print(f"[{stamp}] {line}", file=sys.stderr, flush=True)


@contextmanager
def timed(times: dict[str, float], name: str) -> Iterator[None]:
    """Adds the seconds of its body to times[name]."""
    since = time.monotonic()
    try:
        yield
    finally:
        times[name] = round(times.get(name, 0.0) + time.monotonic() - since, 3)
