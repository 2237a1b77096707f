"""Programmatic dependent launch: a kernel's programs may be set up while the kernel before it still runs.

Where a chain of short kernels is one operation, most of a kernel's start (programs placed, parameters and code fetched)
can hide behind the kernel before. This is the one place that decides whether, and what the kernels have to do:

* The first kernel of a chain is launched as usual, so it starts when everything before it in the stream is done. It
  calls `lead`: its successor's programs may be placed once all of its own have started.
* Every other kernel is launched with `after(on)` and calls `follow` before its first access to memory, in every
  program. `griddepcontrol.wait` returns when the kernel before has completed, all programs, writes visible.
* So kernel i completes only after each of its programs has seen kernel i - 1 complete, which holds of i - 1 in turn: at
  `follow` all kernels of the chain before are done, not just the last, and their scratch may be read or overwritten.
  The next chain, or any other kernel, starts with a usual launch, after the last of this one; scratch that the
  allocator hands on, and the next replay of a graph, are ordered by that. Capture keeps this as edges of the graph.
* `follow` lets its own successor in only after it has waited: no more than two kernels of a chain are resident, and
  those that wait have all programs of the one that they wait for placed before them, so none waits for room.

Compute capability 9.0 and later; elsewhere, and in Triton's interpreter, nothing of this is compiled or passed.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl


@functools.cache
def _capable(index: int) -> bool:
    """Whether this CUDA device launches dependents early; ROCm's numbers of the same form mean other things."""
    return torch.version.hip is None and torch.cuda.get_device_capability(index)[0] >= 9


def supported(device: torch.device) -> bool:
    """Whether kernels on this device may be chained: an NVIDIA GPU of compute capability 9.0 or later."""
    if device.type != "cuda":
        return False
    return _capable(torch.cuda.current_device() if device.index is None else device.index)


def after(on: bool) -> dict[str, bool]:
    """Launch arguments of a kernel that follows another of its chain; `on` is what `supported` said."""
    return {"PDL": True, "launch_pdl": True} if on else {"PDL": False}


@triton.jit
def lead(PDL: tl.constexpr) -> None:
    """In the first kernel of a chain, first thing: the next kernel's programs may be placed."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def follow(PDL: tl.constexpr) -> None:
    """In every other kernel, before any access to memory: waits for the kernel before, then lets the next one in."""
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
