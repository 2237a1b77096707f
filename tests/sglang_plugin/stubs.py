"""Stock modules of the wheel that need no GPU, on stand-ins for those that do. Needs torch.

Real: spec_info, spec_registry, dflash_info, dflash_utils, dflash_worker, the KV allocator. Stand-ins: enums and plain
holders, and the two kernels that write `req_to_token`, as loops.
"""

from __future__ import annotations

import enum
import importlib
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ddtree_kernels import sglang_plugin


class ForwardMode(enum.Enum):
    """As stock's, of the modes that a worker meets."""

    EXTEND = 1
    DECODE = 2
    IDLE = 3
    TARGET_VERIFY = 4

    def is_extend(self) -> bool:
        """Stock counts verify passes too, but only on a ForwardBatch; the worker asks it of prefills."""
        return self is ForwardMode.EXTEND

    def is_idle(self) -> bool:
        """Nothing to run."""
        return self is ForwardMode.IDLE

    def is_target_verify(self) -> bool:
        """A verify pass."""
        return self is ForwardMode.TARGET_VERIFY


class CaptureHiddenMode(enum.IntEnum):
    """As stock's."""

    NULL = 0
    LAST = 1
    FULL = 2


class Holder:
    """Takes any keyword as an attribute."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class ModelWorkerBatch(Holder):
    """What a worker hands to the target."""


class ScheduleBatch:
    """Base of the tests' batches."""


def assign(pool: torch.Tensor, table: torch.Tensor, start: Any, end: Any, loc: torch.Tensor, count: int) -> None:
    """assign_req_to_token_pool: slots of each request at its positions start..end."""
    at = 0
    for i in range(count):
        first, last = int(start[i]), int(end[i])
        table[int(pool[i]), first:last] = loc[at : at + last - first].to(table.dtype)
        at += last - first
    assert at == loc.numel()


def alloc(tree_cache: Any, num_tokens: int, backup_state: bool = False) -> torch.Tensor:
    """alloc_token_slots without a prefix cache to evict from."""
    found = tree_cache.token_to_kv_pool_allocator.alloc(num_tokens)
    if found is None:
        raise RuntimeError(f"Out of memory. Try to allocate {num_tokens} tokens.")
    return found


_GLOBAL: dict[str, Any] = {}
PACKAGES = (
    "sglang", "sglang.srt", "sglang.srt.layers", "sglang.srt.layers.attention", "sglang.srt.layers.quantization",
    "sglang.srt.managers", "sglang.srt.mem_cache", "sglang.srt.model_executor", "sglang.srt.speculative",
    "sglang.srt.utils",
)  # fmt: skip


def _modules(worker: type) -> dict[str, dict[str, Any]]:
    nothing = Holder
    return {
        "sglang.srt.distributed": {"get_tp_group": lambda: Holder(world_size=1)},
        "sglang.srt.layers.attention.utils": {"create_flashinfer_kv_indices_triton": None},
        "sglang.srt.layers.logits_processor": {"LogitsProcessorOutput": Holder},
        "sglang.srt.layers.sampler": {"apply_custom_logit_processor": None},
        "sglang.srt.layers.quantization.unquant": {"UnquantizedLinearMethod": nothing},
        "sglang.srt.managers.schedule_batch": {"ModelWorkerBatch": ModelWorkerBatch, "ScheduleBatch": ScheduleBatch},
        "sglang.srt.managers.scheduler": {"GenerationBatchResult": Holder},
        "sglang.srt.managers.tp_worker": {"TpModelWorker": worker},
        "sglang.srt.mem_cache.common": {
            "alloc_token_slots": alloc, "alloc_paged_token_slots_extend": None, "get_last_loc": None,
        },
        "sglang.srt.model_executor.forward_batch_info": {
            "CaptureHiddenMode": CaptureHiddenMode, "ForwardBatch": Holder, "ForwardMode": ForwardMode,
        },
        "sglang.srt.server_args": {
            "ServerArgs": Holder, "get_global_server_args": lambda: _GLOBAL["args"],
            "set_global_server_args_for_scheduler": lambda args: _GLOBAL.update(args=args),
        },
        "sglang.srt.speculative.spec_utils": {"assign_req_to_token_pool_func": assign},
        "sglang.srt.mem_cache.memory_pool": {"KVCache": Holder},
    }  # fmt: skip


OURS = ("verify_input", "worker", "selftest", "appending")


@contextmanager
def stock_modules(stock: Path, worker: type) -> Iterator[types.SimpleNamespace]:
    """The modules in sys.modules for as long as it lasts. worker: stands in for TpModelWorker (the draft's)."""
    before = dict(sys.modules)
    for name in PACKAGES:
        made = types.ModuleType(name)
        made.__path__ = [str(stock.joinpath(*name.split(".")))]
        sys.modules[name] = made
    for name in ("is_cuda", "is_musa", "get_bool_env_var", "get_num_new_pages", "next_power_of_2"):
        setattr(sys.modules["sglang.srt.utils"], name, lambda *args: False)
    for name, values in _modules(worker).items():
        made = types.ModuleType(name)
        made.__dict__.update(values)
        sys.modules[name] = made
    try:
        get = importlib.import_module
        yield types.SimpleNamespace(
            dflash=get("sglang.srt.speculative.dflash_worker").DFlashWorker,
            info=get("sglang.srt.speculative.dflash_info"),
            spec=get("sglang.srt.speculative.spec_info").SpeculativeAlgorithm,
            allocator=get("sglang.srt.mem_cache.allocator").TokenToKVPoolAllocator,
            ddtree=get("ddtree_kernels.sglang_plugin.worker").DDTreeWorker,
            selftest=get("ddtree_kernels.sglang_plugin.selftest"),
            set_args=lambda args: _GLOBAL.update(args=args),
        )
    finally:
        for name in set(sys.modules) - set(before):
            if name.partition(".")[0] == "sglang":
                del sys.modules[name]
        for name in OURS:  # they hold classes of stock: the next user imports them anew
            sys.modules.pop(f"ddtree_kernels.sglang_plugin.{name}", None)
            vars(sglang_plugin).pop(name, None)
