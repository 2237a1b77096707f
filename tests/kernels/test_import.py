"""The package imports without torch; its public names load on first use."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
WITHOUT = """
import sys
sys.path.insert(0, sys.argv[1])
for name in ("torch", "triton", "numpy"):
    sys.modules[name] = None  # importing it now fails
import ddtree_kernels
assert "tree_build" in dir(ddtree_kernels)
import ddtree_kernels.bench.run
try:
    ddtree_kernels.tree_build
except ImportError:
    print("imported")
"""


def test_imports_where_nothing_is_installed() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT, str(KERNELS)], capture_output=True, text=True, check=False)
    assert done.stdout == "imported\n", done.stderr


def test_unknown_names_are_attribute_errors() -> None:
    import ddtree_kernels

    with pytest.raises(AttributeError, match="no_such_op"):
        ddtree_kernels.no_such_op  # noqa: B018


def test_torch_is_here() -> None:
    missing = [name for name in ("torch", "triton", "numpy") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: the kernels' tests were not collected")
    import ddtree_kernels

    for name in ddtree_kernels.__all__:
        assert getattr(ddtree_kernels, name) is not None
