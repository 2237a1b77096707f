"""The KV pool: SGLang's meaning of the fraction, the shortfall in words, and what this machine has free."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ddtree_kernels.decode import pool
from ddtree_kernels.decode.pool import LEAST, MemoryShort, Need

NEED = Need(weights=600, draft_weights=100, token=8, draft_token=2, reserve=10)
FREE = 10_000


def size(fraction: float | None, context: int = 100, most: int | None = None, free: int = FREE) -> pool.Size:
    return pool.size(free, NEED, context=context, fraction=fraction, most=most, device="cpu")


def test_a_fraction_sizes_the_pool_and_the_context_does_not() -> None:
    assert size(0.5).tokens == (5000 - 700) // 10 == size(0.5, context=100_000).tokens
    assert size(0.9).tokens == (9000 - 700) // 10


def test_without_a_fraction_one_context_fits_and_the_fraction_is_told() -> None:
    found = size(None, context=200)
    assert found.tokens == 210
    assert found.fraction == pytest.approx((700 + 2100) / FREE)
    assert size(None, context=10**9).tokens == (7000 - 700) // 10


def test_a_cap_holds_but_never_below_the_least() -> None:
    assert size(0.9, most=300).tokens == 300
    assert size(0.9, most=1).tokens == 10 + LEAST


@given(st.integers(2_000, 10**12), st.floats(0.001, 0.999))
def test_the_fraction_named_does_and_a_smaller_one_does_not(free: int, fraction: float) -> None:
    try:
        size(fraction, free=free)
    except MemoryShort as error:
        found = re.search(r"least fraction that would do is ([\d.]+)", str(error))
        if found is None:
            assert "no fraction would do" in str(error)
            with pytest.raises(MemoryShort):
                size(0.998, free=free)
            return
        least = float(found.group(1))
        assert fraction < least
        size(least, free=free)
        if least > 0.002:
            with pytest.raises(MemoryShort):
                size(least - 0.00101, free=free)


def test_the_shortfall_is_one_line_in_sglang_s_words() -> None:
    with pytest.raises(MemoryShort) as caught:
        pool.size(
            8 * pool.GIB, Need(6 * pool.GIB, pool.GIB, 1 << 18, 1 << 16, 100), context=1, fraction=0.5, most=None,
            device="cuda",
        )  # fmt: skip
    text = str(caught.value)
    assert text.startswith("Not enough memory. Please try to increase --mem-fraction-static.")
    assert "0.5 of 8.00 GB free GPU memory is 3.05 GB short" in text and "6 GB target" in text and "\n" not in text


def test_free_memory_of_this_machine_and_of_a_limited_service(tmp_path: Path) -> None:
    cpu = torch.device("cpu")
    total = int(Path("/proc/meminfo").read_text().split("MemTotal:")[1].split()[0]) * 1024
    assert 0 < pool.free_memory(cpu) <= total
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    5000 kB\n")
    assert pool.free_memory(cpu, proc, groups) == 5000 * 1024
    (proc / "self/cgroup").write_text("0::/system.slice/wrapper.service\n")
    slice_, unit = groups / "system.slice", groups / "system.slice/wrapper.service"
    unit.mkdir(parents=True)
    for folder, limit, current in ((unit, "max", 5), (slice_, str(3000 * 1024), 1024 * 1000)):
        (folder / "memory.max").write_text(limit + "\n")
        (folder / "memory.current").write_text(f"{current}\n")
    assert pool.free_memory(cpu, proc, groups) == 2000 * 1024
