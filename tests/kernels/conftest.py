"""Without torch only the test that says so runs; without a GPU kernels run under Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import pytest

HAVE = all(importlib.util.find_spec(name) for name in ("torch", "triton", "numpy"))
collect_ignore_glob = [] if HAVE else ["test_tree_*.py", "test_kv_*.py", "test_round.py", "test_gpu_check_on_gpu.py"]

if HAVE:
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, so before any test module


ALONE = "test_gpu_check_on_gpu.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under pytest-xdist what reads the whole GPU's memory is skipped: its neighbours' would be counted too."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        for item in items:
            if item.path.name == ALONE:
                item.add_marker(pytest.mark.skip(reason="reads the GPU's memory in use: run it alone, with -n 0"))


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch.empty gives rubbish: what a kernel leaves unwritten, or reads before it wrote, shows."""
    import torch

    plain = torch.empty

    def rubbish(*size: Any, **options: Any) -> torch.Tensor:
        made = plain(*size, **options)
        return made.fill_(float("nan") if made.is_floating_point() else 77_777 if made.element_size() > 2 else 77)

    monkeypatch.setattr(torch, "empty", rubbish)
    yield
