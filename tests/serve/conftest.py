"""The server needs the `serve` extra; without it these tests are not collected."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

NEEDED = ("torch", "triton", "numpy", "starlette", "uvicorn", "tokenizers", "safetensors", "prometheus_client")
HAVE = all(importlib.util.find_spec(name) for name in NEEDED)
collect_ignore_glob = [] if HAVE else ["test_*.py"]

if HAVE:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def pair_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random pair on disk."""
    from tests.serve.disk import write_pair

    return write_pair(tmp_path_factory.mktemp("pair") / "random")
