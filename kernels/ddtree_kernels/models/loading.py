"""Hugging Face folders -> models: safetensors, whole or sharded; names and sizes are checked first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from ddtree_kernels.models.api import DraftConfig, ModelError, Pair, TargetConfig
from ddtree_kernels.models.config import read_draft_config, read_json, read_target_config
from ddtree_kernels.models.dflash import DFlash, draft_names
from ddtree_kernels.models.libraries import library
from ddtree_kernels.models.qwen3 import Qwen3, target_names
from ddtree_kernels.models.tokenizer import Tokenizer, load_tokenizer

Names = Mapping[str, tuple[int, ...]]


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model: the shards of the index, or model.safetensors. ModelError if one is missing."""
    if not folder.is_dir():
        raise ModelError(f"{folder} is no folder: name the folder that holds config.json and the safetensors files")
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        whole = folder / "model.safetensors"
        if not whole.exists():
            raise ModelError(f"{folder} holds neither model.safetensors nor model.safetensors.index.json")
        return [whole]
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise ModelError(f"{index} has no weight_map of file names")
    files = [folder / name for name in sorted(set(shards.values()))]
    for file in files:
        if file.parent != folder:
            raise ModelError(f"{index} names {file.name!r} outside its folder")
        if not file.exists():
            raise ModelError(f"{file} is missing, but {index.name} lists it: copy the whole model")
    return files


def _opened(file: Path, device: torch.device | str) -> Any:
    """safe_open of the file; ModelError for what is cut short or no safetensors file."""
    safetensors = library("safetensors")
    try:
        return safetensors.safe_open(str(file), framework="pt", device=str(device))
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror or error}") from error
    except safetensors.SafetensorError as error:
        size = file.stat().st_size
        raise ModelError(
            f"{file} is truncated or no safetensors file ({size} bytes; {error}): copy it again"
        ) from error


def _tensors(
    files: Iterable[Path], names: Names, optional: str, device: torch.device | str
) -> Iterator[tuple[str, Any]]:
    """(name, tensor) of every wanted one, each of its size; ModelError for one that is missing, strange or unequal."""
    left = dict(names)
    where: Path | None = None
    for file in files:
        where = file
        with _opened(file, device) as opened:
            for name in opened.keys():  # noqa: SIM118 (no mapping)
                if name not in left:
                    if name in names:
                        raise ModelError(f"{file}: tensor {name} is there twice")
                    if name == optional:
                        continue
                    raise ModelError(f"{file}: tensor {name} belongs to no such model as config.json describes")
                want, have = left.pop(name), tuple(opened.get_slice(name).get_shape())
                if have != want:
                    raise ModelError(f"{file}: tensor {name} is {list(have)}, config.json says {list(want)}")
                yield name, opened.get_tensor(name)
    if left:
        count = f" and {len(left) - 1} more" if len(left) > 1 else ""
        folder = where.parent if where is not None else "the model"
        raise ModelError(f"{folder}: tensor {next(iter(left))}{count} missing from its safetensors files")


def _read(folder: Path, names: Names, optional: str, device: torch.device | str, dtype: torch.dtype) -> dict[str, Any]:
    return {
        name: tensor.to(dtype).contiguous() for name, tensor in _tensors(weight_files(folder), names, optional, device)
    }


def weight_bytes_of(path: Path | str, dtype: torch.dtype | None = None) -> int:
    """Bytes of a model's weights once loaded as dtype (None: as stored), from the safetensors headers. ModelError."""
    total = 0
    for file in weight_files(Path(path)):
        with _opened(file, "cpu") as opened:
            for name in opened.keys():  # noqa: SIM118 (no mapping)
                part = opened.get_slice(name)
                size = {"F64": 8, "F32": 4, "I64": 8, "I32": 4, "F8_E4M3": 1, "I8": 1, "U8": 1}.get(part.get_dtype(), 2)
                total += math.prod(part.get_shape()) * (size if dtype is None else dtype.itemsize)
    return total


def load_target(path: Path | str, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Qwen3:
    """The target in this folder. ModelError names the file and the cause of whatever cannot be loaded."""
    folder = Path(path)
    config = read_target_config(folder)
    weights = _read(folder, target_names(config), "lm_head.weight" if config.tied else "", device, dtype)
    return Qwen3(config, weights, drop=True)


def check_pair(draft: DraftConfig, target: TargetConfig, path: Path) -> None:
    """ModelError unless a draft of this configuration can serve the target; path names the draft."""

    def need(fits: bool, what: str) -> None:
        if not fits:
            raise ModelError(f"{path}: this draft is not of this target: {what}; use the draft made for it")

    layers = target.shape.num_hidden_layers
    size, own = target.shape.hidden_size, draft.shape.hidden_size
    need(own == size, f"its hidden size is {own}, the target's {size}")
    need(
        draft.vocab_size == target.vocab_size,
        f"its vocabulary is {draft.vocab_size}, the target's {target.vocab_size}",
    )
    need(draft.target_layers in (0, layers), f"it expects {draft.target_layers} target layers, the target has {layers}")
    worst = max(draft.layer_ids)
    need(worst < layers, f"it reads target layer {worst}, the target has layers 0 to {layers - 1}")
    need(
        draft.mask_token_id < target.vocab_size,
        f"its mask token {draft.mask_token_id} is outside the vocabulary of {target.vocab_size}",
    )


def load_draft(
    path: Path | str, target: Qwen3, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> DFlash:
    """The draft in this folder, bound to the target, whose layer_ids it sets. ModelError as load_target, and for a
    draft that is not of this target."""
    folder = Path(path)
    if not folder.is_dir():
        raise ModelError(f"no draft at {folder}: name the folder of the DFlash draft made for this target")
    config = read_draft_config(folder)
    check_pair(config, target.config, folder)
    draft = DFlash(config, _read(folder, draft_names(config), "", device, dtype), target, drop=True)
    target.layer_ids = config.layer_ids
    return draft


def load_pair(
    path: Path | str,
    draft: Path | str | None = None,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    with_draft: bool = True,
) -> Pair:
    """Target, tokenizer and draft.

    Args:
        path: "tiny" for the shipped pair, a folder with target/ and draft/, or a target's own folder.
        draft: the draft's folder; None = the one beside the target.
        with_draft: False loads no draft at all.
    Raises:
        ModelError: one line, for anything missing, mismatched or damaged.
    """
    if str(path) == "tiny":
        from ddtree_kernels import tiny

        path = tiny.path()
    folder = Path(path)
    if not folder.is_dir():
        raise ModelError(f"no model at {folder}: name a folder, or tiny for the pair that comes with this package")
    home = folder / "target" if (folder / "target" / "config.json").exists() else folder
    beside = folder / "draft" if draft is None else Path(draft)
    if with_draft and draft is None and not beside.is_dir():
        raise ModelError(f"{folder} has no draft beside it: name one, or decode without (autoregressive)")
    target = load_target(home, device, dtype)
    tokenizer: Tokenizer = load_tokenizer(home, target.config.vocab_size)
    return Pair(target, load_draft(beside, target, device, dtype) if with_draft else None, tokenizer, folder)
