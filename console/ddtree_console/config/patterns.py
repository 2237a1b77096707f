"""Patterns of an operator's own rules on trial: one that backtracks without end would hold up every wait.

Python's `re` has no limit of its own, so the trial is a short process with a limit on the CPU that a pattern may use;
its strings are in trial.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ddtree_console.domain.findings.rules import SPAN

LIMIT_S = 0.2
"""CPU seconds that one pattern may use on one string; an ordinary one needs less than a thousandth of it."""
WHOLE_S = 60.0
_TRIAL = Path(__file__).with_name("trial.py")


def endless(patterns: Sequence[str]) -> list[int]:
    """Positions of those that need too long on a line of SPAN characters; patterns that do not compile are no matter.

    OSError where no process can be started; all of them where the trial itself does not end.
    """
    if not patterns:
        return []
    command = [sys.executable, "-I", str(_TRIAL), str(SPAN), str(LIMIT_S)]
    try:
        done = subprocess.run(
            command, input=json.dumps(list(patterns)), capture_output=True, text=True, timeout=WHOLE_S, check=True
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return list(range(len(patterns)))
    return [int(i) for i in json.loads(done.stdout)]
