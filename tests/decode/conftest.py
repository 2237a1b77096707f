"""Decoding needs torch; without it these tests are not collected."""

from __future__ import annotations

import importlib.util

HAVE = all(importlib.util.find_spec(name) for name in ("torch", "triton", "numpy"))
collect_ignore_glob = [] if HAVE else ["test_*.py"]

if HAVE:
    import os

    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, so before any test module

    # so small a model gains nothing from more, and threads that wait for each other beside other tests lose much
    torch.set_num_threads(1)
