"""What decides imports neither sglang nor torch, so that a launcher's parser costs nothing and CI can test it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
WITHOUT = """
import sys
sys.path.insert(0, sys.argv[1])
for name in ("torch", "triton", "numpy", "sglang", "sgl_kernel"):
    sys.modules[name] = None  # importing it now fails
from ddtree_kernels.sglang_plugin import (
    buffers, counters, options, plugin, releases, rope, settings, signatures, slots, tree, validate, walk,
)
print("imported")
"""


def test_imports_where_nothing_is_installed() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT, str(KERNELS)], capture_output=True, text=True, check=False)
    assert done.stdout == "imported\n", done.stderr
