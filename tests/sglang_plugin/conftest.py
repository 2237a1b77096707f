"""Without torch only what needs none is collected; stock kernels run under Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builds import wheels

HAVE = all(importlib.util.find_spec(name) for name in ("torch", "triton", "numpy"))
NEED_TORCH = ["test_packed.py", "test_ranked.py", "test_sampling.py", "test_kernel.py", "test_rounds.py",
              "test_appending.py"]  # fmt: skip
collect_ignore_glob = [] if HAVE else NEED_TORCH
RELEASE = "0.5.12"

if HAVE:
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, so before any test module


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the Python of the stock release; skips with the reason where its wheel cannot be had."""
    try:
        wheel = wheels.fetch(RELEASE, seconds=60)
    except OSError as error:
        pytest.skip(str(error))
    yield wheels.unpack(wheel, tmp_path_factory.mktemp("stock"), PARTS)


PARTS = (
    "sglang/__init__.py", "sglang/version.py", "/srt/environ.py", "/srt/plugins/", "/srt/speculative/",
    "/srt/server_args.py", "/srt/managers/schedule_batch.py", "/srt/managers/scheduler.py", "/srt/mem_cache/",
    "/srt/sampling/sampling_batch_info.py", "/srt/layers/logits_processor.py", "/srt/layers/sampler.py",
    "/srt/layers/attention/triton_", "/srt/model_executor/", "/srt/utils/hf_transformers/", ".dist-info/",
)  # fmt: skip
"""what the plug-in's tests read of the wheel; the rest takes seconds to unpack."""
