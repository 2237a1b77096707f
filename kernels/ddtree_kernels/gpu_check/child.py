"""`python -m ddtree_kernels.gpu_check.child STAGE CAP_MB`: one stage, one JSON line on stdout."""

from __future__ import annotations

import json
import sys
from typing import Any

MEMORY_WORDS = ("out of memory", "OutOfMemory", "CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED")


def cap(megabytes: int) -> None:
    """Limits torch's allocator on the current GPU. The context itself (some 500 MB) is outside of it."""
    import torch

    if not torch.cuda.is_available():
        return
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(min(1.0, megabytes * 1e6 / total))


def last_line(error: BaseException) -> str:
    """Type and first line of what went wrong."""
    text = str(error).strip().splitlines()
    if type(error).__name__ == "Wrong" and text:
        return text[0]
    return f"{type(error).__name__}: {text[0] if text else 'no reason given'}"[:400]


def run(stage: str, megabytes: int) -> dict[str, Any]:
    """{"state", "evidence", "remedy"} of that stage; never raises but for what ends the process."""
    try:
        from ddtree_kernels.gpu_check import plain

        cap(megabytes)
        found = plain.RUN.get(stage)
        if found is None:
            # only here: a Triton that cannot be imported says nothing about torch
            from ddtree_kernels.gpu_check import triton_stages

            found = triton_stages.RUN[stage]
        evidence = found()
        plain.settle()
    except ImportError as error:
        remedy = f"install {error.name or 'what is missing'} for this interpreter"
        return {"state": "fail", "evidence": last_line(error), "remedy": remedy}
    except Exception as error:
        text = last_line(error)
        short = any(word in str(error) or word in text for word in MEMORY_WORDS)
        remedy = f"the cap of {megabytes} MB is too small, or the GPU is full: free it, or raise --memory-mb"
        return {"state": "fail", "evidence": text, "remedy": remedy if short else ""}
    return {"state": "ok", "evidence": evidence, "remedy": ""}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]))))
