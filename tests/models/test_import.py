"""What can be said without torch: the contract imports, and a machine that lacks the packages says which."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.models.conftest import MISSING

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
WITHOUT = """
import sys
sys.path.insert(0, sys.argv[1])
for name in ("torch", "triton", "tokenizers", "safetensors", "transformers"):
    sys.modules[name] = None  # importing it now fails
import ddtree_kernels.tiny
import ddtree_kernels.tiny.prompts
print(ddtree_kernels.tiny.path().name)
"""
LOADED = """
import sys
import ddtree_kernels.models, ddtree_kernels.tiny
print(sorted({"triton", "transformers", "tokenizers", "safetensors"} & set(sys.modules)))
"""


def test_the_pair_is_found_where_nothing_is_installed() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT, str(KERNELS)], capture_output=True, text=True, check=False)
    assert done.stdout == "pair\n", done.stderr


def test_the_packages_are_here() -> None:
    if MISSING:
        pytest.skip(f"{', '.join(MISSING)} not installed: the models' tests were not collected")
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr  # importing the models loads none of them before it is used
