"""`demo --engine wrapper` where the server's packages are missing: one line that says which, and nothing is started."""

from __future__ import annotations

import subprocess
import sys

HIDE = """\
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in ("torch", "uvicorn") else find(name, *more)
from ddtree_console.cli import main
sys.exit(main(["demo", "--engine", "wrapper", "--headless"]))
"""


def test_it_refuses_and_names_what_is_missing() -> None:
    done = subprocess.run([sys.executable, "-c", HIDE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stdout == ""
    assert "torch, " in done.stderr and "uvicorn" in done.stderr and "ddtree-console[serve]" in done.stderr
    assert "Traceback" not in done.stderr
