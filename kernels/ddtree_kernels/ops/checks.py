"""What every operation checks of its arguments, and which of its two bodies runs them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

INDEX_TYPES = (torch.int32, torch.int64)
FLOAT_TYPES = (torch.bfloat16, torch.float16, torch.float32)


def on_gpu(tensor: torch.Tensor) -> bool:
    """Whether the Triton kernels run these arguments: by device alone, so a broken installation is never hidden."""
    return tensor.device.type == "cuda"


def capturing() -> bool:
    """Whether the current stream is being captured into a CUDA graph."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def need(condition: bool, message: str) -> None:
    """ValueError with the message unless the condition holds."""
    if not condition:
        raise ValueError(message)


def need_tensor(
    name: str,
    tensor: object,
    shape: Sequence[int | str],
    dtypes: Sequence[torch.dtype],
    device: torch.device | None = None,
) -> torch.Tensor:
    """The tensor, when it has this shape (a word stands for any positive size), one of the types and the device.

    Raises TypeError for what is no tensor or has another type, ValueError for shape and device.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(tensor).__name__}")
    if tensor.dtype not in dtypes:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise TypeError(f"{name} is {str(tensor.dtype).removeprefix('torch.')}, not one of {names}")
    wanted = "[" + ", ".join(map(str, shape)) + "]"
    fits = tensor.dim() == len(shape) and all(
        have >= 1 if isinstance(size, str) else have == size for have, size in zip(tensor.shape, shape, strict=True)
    )
    need(fits, f"{name} has shape {list(tensor.shape)}, not {wanted}")
    if device is not None:
        need(tensor.device == device, f"{name} is on {tensor.device}, not on {device} like the rest")
    return tensor


def next_power_of_two(value: int) -> int:
    """The smallest power of two that is not below value (1 for 1 and less)."""
    return 1 << max(0, value - 1).bit_length()
