"""The one line with which a command answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def say(value: Mapping[str, Any]) -> int:
    """Prints it; exit status 0."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()
    return 0


def refuse(code: int, cause: str, next_step: str, **more: Any) -> int:
    """Prints why not; the exit status is the code."""
    say({"ok": False, "code": code, "cause": cause, "next": next_step, **more})
    return code
