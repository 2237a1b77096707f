"""Without torch, tokenizers and safetensors only the test that says so runs (`make kernel-packages` brings them)."""

from __future__ import annotations

import importlib.util

NEEDS = ("torch", "triton", "numpy", "tokenizers", "safetensors")
MISSING = [name for name in NEEDS if importlib.util.find_spec(name) is None]
collect_ignore_glob = ["test_[!i]*.py"] if MISSING else []

if not MISSING:
    import os

    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, so before any test module
