"""Copying: masked text for the terminal's clipboard, and the same in a file where OSC 52 does not get through."""

from __future__ import annotations

import os
from pathlib import Path

from ddtree_console.domain.secrets import mask
from ddtree_console.domain.text import visible

SMALL = 70_000
"""characters that common terminals take in one OSC 52."""


def masked_lines(text: str) -> tuple[str, bool]:
    """The text with secrets masked and controls visible, line by line; True when something was masked."""
    masked = [mask(line) for line in text.split("\n")]
    hidden = "\n".join(masked) != text or "***" in text
    return "\n".join(visible(line) for line in masked), hidden


def default_folder() -> Path:
    """Where the copy file lies."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "ddtree-console")


def write_copy(text: str, folder: Path | None = None) -> Path:
    """Writes copied.txt (0600) and returns its path; OSError when it cannot."""
    where = folder or default_folder()
    where.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = where / "copied.txt"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    return path
