"""A checkpoint on this host: its config.json and the size of its weights, without loading one tensor."""

from __future__ import annotations

import json
import os
import re
import stat
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CONFIG_LIMIT, INDEX_LIMIT, HEADER_LIMIT = 4 << 20, 64 << 20, 100 << 20
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+\Z")
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"


class Unreadable(Exception):
    """The text says what and why."""


def content(path: Path, limit: int) -> bytes:
    """A regular file's bytes. Unreadable: missing, no permission, no plain file, too large."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise Unreadable(f"{path} is no plain file")
        with path.open("rb") as file:
            found = file.read(limit + 1)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from None
    if len(found) > limit:
        raise Unreadable(f"{path} is larger than {limit >> 20} MiB")
    return found


def parsed(path: Path, limit: int) -> dict[str, Any]:
    """The JSON object in a file; Unreadable as `content`."""
    try:
        raw = json.loads(content(path, limit))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{path} is no JSON: {str(error)[:80]}") from None
    if not isinstance(raw, dict):
        raise Unreadable(f"{path} holds no object")
    return raw


def hub(environ: Mapping[str, str]) -> Path:
    """The hub's cache folder, as huggingface_hub finds it."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(name):
            return Path(environ[name])
    cache = Path(environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME') or '~'}/.cache")
    return Path(environ.get("HF_HOME") or cache / "huggingface").expanduser() / "hub"


def folder(name: str, environ: Mapping[str, str], workdir: str = "", revision: str = "main") -> Path:
    """Where a model lies: a folder, else a hub id's snapshot in the cache. Unreadable says where was looked."""
    local = Path(workdir or "/", name).expanduser()
    try:
        if stat.S_ISDIR(local.stat().st_mode):
            return local
        raise Unreadable(f"{local} is no folder of a model")
    except OSError as error:
        if name.startswith(("/", ".", "~")) or not _HUB_ID.match(name):
            raise Unreadable(f"{local}: {error.strerror}") from None
    cached = hub(environ) / f"models--{name.replace('/', '--')}"
    commit = revision
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        commit = content(cached / "refs" / revision, 200).decode("ascii", "replace").strip()
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise Unreadable(f"{cached / 'refs' / revision} names no commit")
    return cached / "snapshots" / commit


def tensors(path: Path) -> Iterator[tuple[str, int]]:
    """(name, bytes) of each tensor in a safetensors file, from its header alone. Unreadable."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            if not 2 <= length <= min(HEADER_LIMIT, max(0, size - 8)):
                raise Unreadable(f"{path} is no safetensors file, or was cut off")
            raw = json.loads(file.read(length))
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise Unreadable(f"{path}: its header is damaged") from None
    if not isinstance(raw, dict):
        raise Unreadable(f"{path}: its header is damaged")
    last = 0
    for name, about in raw.items():
        if name == "__metadata__":
            continue
        offsets = about.get("data_offsets") if isinstance(about, dict) else None
        ends = offsets if isinstance(offsets, list) and all(type(n) is int for n in offsets) else []
        if len(ends) != 2 or not 0 <= ends[0] <= ends[1]:
            raise Unreadable(f"{path}: its header is damaged")
        last = max(last, ends[1])
        yield name, ends[1] - ends[0]
    if size < 8 + length + last:
        raise Unreadable(f"{path} was cut off: {size:,} of {8 + length + last:,} bytes are there")


def loaded(name: str, config: Mapping[str, Any]) -> bool:
    """Whether a server loads that tensor for its target: no second head of tied embeddings, no multi-token layers."""
    inner = config.get("text_config")
    text = {**config, **inner} if isinstance(inner, dict) else config
    if name.startswith("lm_head.") and text.get("tie_word_embeddings") is True:
        return False
    layers, at = text.get("num_hidden_layers"), _LAYER.search(name)
    beyond = at is not None and isinstance(layers, int) and "vis" not in name and int(at.group(1)) >= layers
    return not name.startswith("mtp.") and not beyond


def shards(where: Path) -> tuple[Path, ...]:
    """The files that hold the weights, as the index names them, else those that lie there. Unreadable."""
    if (where / INDEX).exists():
        named = parsed(where / INDEX, INDEX_LIMIT).get("weight_map")
        files = sorted({str(f) for f in named.values()}) if isinstance(named, dict) else []
        if not files or any("/" in f or f.startswith(".") for f in files):
            raise Unreadable(f"{where / INDEX} names no files")
        missing = [f for f in files if not (where / f).exists()]
        if missing:
            what = "none of them is there" if len(missing) == len(files) else f"{missing[0]} is missing"
            raise Unreadable(f"{where / INDEX} names {len(files)} files, and {what}")
        return tuple(where / f for f in files)
    if (where / SINGLE).exists():
        return (where / SINGLE,)
    try:
        found = sorted(p for p in where.iterdir() if p.suffix == ".safetensors")
    except OSError as error:
        raise Unreadable(f"{where}: {error.strerror}") from None
    if not found:
        raise Unreadable(f"{where} holds no safetensors file")
    return tuple(found)


def weights(where: Path, config: Mapping[str, Any]) -> int:
    """Bytes of all tensors that a server loads. Unreadable."""
    return sum(size for shard in shards(where) for name, size in tensors(shard) if loaded(name, config))


def slim(config: dict[str, Any]) -> dict[str, Any]:
    """The config without the long lists of a quantizer: only that it is quantized, and how, decides anything."""
    quantized = config.get("quantization_config")
    if isinstance(quantized, dict):
        plain = {k: v for k, v in quantized.items() if isinstance(v, (str, int, float, bool))}
        return {**config, "quantization_config": plain or {"quant_method": ""}}
    return config


def read(name: str, environ: Mapping[str, str], workdir: str = "", revision: str = "main") -> dict[str, Any]:
    """{"path", "config", "weights", "problems"} of a model. Never raises for what lies on the disk."""
    answer: dict[str, Any] = {"path": name, "config": {}, "weights": None, "problems": []}
    try:
        where = folder(name, environ, workdir, revision)
        answer["path"] = str(where)
    except Unreadable as error:
        answer["problems"].append(str(error))
        return answer
    for key, look in (
        ("config", lambda: slim(parsed(where / "config.json", CONFIG_LIMIT))),
        ("weights", lambda: weights(where, answer["config"])),
    ):
        try:
            answer[key] = look()
        except Unreadable as error:
            answer["problems"].append(str(error))
    return answer
