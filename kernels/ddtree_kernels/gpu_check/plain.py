"""What plain torch must do here, in a child that may crash. Needs a CUDA GPU; imports nothing of Triton."""

from __future__ import annotations

from collections.abc import Callable

import torch


class Wrong(Exception):
    """A result is not the reference's."""


def settle() -> None:
    """Waits for the GPU: an error of a kernel is told here at the latest."""
    torch.cuda.synchronize()


def use_torch() -> str:
    """Torch sees the GPU, and its build has code for it."""
    if not torch.cuda.is_available():
        raise Wrong(f"torch {torch.__version__} sees no CUDA GPU")
    major, minor = torch.cuda.get_device_capability()
    name, built = torch.cuda.get_device_name(), torch.cuda.get_arch_list()
    # Code of the same major version runs, and PTX is compiled by the driver.
    covered = any(arch.startswith((f"sm_{major}", "compute_")) for arch in built)
    if not covered:
        raise Wrong(f"torch {torch.__version__} is built for {' '.join(built)}, not for sm_{major}{minor} ({name})")
    x = torch.arange(1024, device="cuda", dtype=torch.float32)
    if float(x.sum()) != 1023 * 512:
        raise Wrong("a sum on the GPU is wrong")
    return f"torch {torch.__version__}, CUDA {torch.version.cuda}, {name} sm_{major}{minor}"


def use_memory() -> str:
    """As much as the stages need fits under the cap, and a product is right."""
    size = 2048
    a = torch.randn(size, size, device="cuda")
    b = torch.randn(size, size, device="cuda")
    rows = slice(0, 8)
    wanted = a[rows].double() @ b.double()
    error = float(((a @ b)[rows].double() - wanted).norm() / wanted.norm())
    if not error < 1e-2:  # TF32 may be on
        raise Wrong(f"a matrix product differs from float64's by {error:.1e}")
    return f"{torch.cuda.max_memory_allocated() / 1e6:.0f} MB in use at most, product right to {error:.0e}"


def graph() -> str:
    """A CUDA graph of plain torch operations, replayed on changed inputs."""
    x = torch.zeros(256, 256, device="cuda")
    w = torch.randn(256, 256, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        (x @ w).relu()  # libraries start outside the capture
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        y = (x @ w).relu() + 1
    for seed in range(3):
        torch.manual_seed(seed)
        x.normal_()
        captured.replay()
        if not torch.allclose(y, (x @ w).relu() + 1, rtol=1e-3, atol=1e-3):
            raise Wrong("a replayed graph does not follow its inputs")
    return "captured, and 3 replays follow their inputs"


RUN: dict[str, Callable[[], str]] = {"torch": use_torch, "memory": use_memory, "graph": graph}
