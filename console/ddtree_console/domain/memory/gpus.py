"""Free memory of a slot's GPUs as if its own service were stopped. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ddtree_console.domain.snapshot import Gpu, GpuReport


def _free(gpu: Gpu, unit: str) -> int | None:
    """Free bytes once that unit is gone; None where nobody can tell what it holds."""
    if gpu.fault or gpu.free is None:
        return None
    own = [process.used for process in gpu.processes if process.unit == unit]
    if None not in own:
        return gpu.free + sum(size for size in own if size is not None)
    alone = len(own) == len(gpu.processes) and gpu.used is not None
    return gpu.free + (gpu.used or 0) if alone else None


def without(report: GpuReport, gpus: Sequence[int], unit: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(free, total) of those GPUs in the slot's order without that unit; ((), ()) where not all of it is known."""
    by_index = {gpu.index: gpu for gpu in report.gpus}
    slot = [by_index[i] for i in gpus if i in by_index]
    free = [_free(gpu, unit) for gpu in slot]
    total = [gpu.total for gpu in slot]
    if not gpus or len(slot) != len(gpus) or None in free or None in total:
        return (), ()
    return tuple(size for size in free if size is not None), tuple(size for size in total if size is not None)
