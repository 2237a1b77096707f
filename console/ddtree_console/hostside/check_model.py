"""Can this user read target, draft and tokenizer of a command line; and do the two models belong together?"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ddtree_console.hostside.check_finding import Finding
from ddtree_console.hostside.env_launch import Target

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tekken.json")
NO_TOKENIZER = "skip-tokenizer-init"
_SHARED = ("DFLASH", "DDTREE")
MOST_FILES = 2000
WRAPPER, SHIPPED = "ddtree_kernels", "tiny"
"""The wrapper's package, and its word for the pair that comes with it."""


def blocked(path: Path) -> str:
    """Why a path cannot be reached: the first part of it that is missing or closed; '' where it can."""
    for part in (*reversed(path.parents), path):
        try:
            is_dir = part.stat() and part.is_dir()
        except FileNotFoundError:
            if part.is_symlink():
                return f"{part} is a link to {part.readlink()}, which is not there"
            return f"{part} does not exist"
        except OSError as error:
            return f"{part}: {error.strerror}"
        if not os.access(part, os.R_OK if part == path and not is_dir else os.X_OK):
            return f"{part} is closed to this user"
    return ""


def hub_folder(name: str, env: Mapping[str, str]) -> Path | None:
    """The snapshot of a hub model in this user's cache; None where it has none."""
    home = Path(env.get("HOME") or os.environ.get("HOME") or "/")
    hub = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE")
    base = Path(hub) if hub else Path(env.get("HF_HOME") or home / ".cache/huggingface", "hub")
    folder = base / f"models--{name.replace('/', '--')}"
    try:
        revision = (folder / "refs/main").read_text("utf-8").strip()
        snapshot = folder / "snapshots" / revision
        if snapshot.is_dir():
            return snapshot
        return next(iter(sorted((folder / "snapshots").iterdir())), None)
    except OSError:
        return None


def config_of(folder: Path) -> dict[str, Any]:
    """config.json, the text part of a multimodal one on top. OSError, ValueError."""
    raw = json.loads((folder / "config.json").read_text("utf-8"))
    if not isinstance(raw, dict):
        raise ValueError("config.json is no object")
    inner = raw.get("text_config")
    return {**raw, **inner} if isinstance(inner, dict) else raw


def _shards(folder: Path) -> list[str]:
    """Names of the weight files that the index or the folder lists. OSError, ValueError."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        raw = json.loads(index.read_text("utf-8"))
        names = raw.get("weight_map") if isinstance(raw, dict) else None
        if not isinstance(names, dict):
            raise ValueError(f"{index.name} names no shards")
        return sorted({str(name) for name in names.values()})
    listed = os.listdir(folder)  # noqa: PTH208 - names alone
    return sorted(name for name in listed if name.endswith((".safetensors", ".bin", ".pt", ".gguf")))


def weights(folder: Path) -> str:
    """Why its weights cannot be read; '' where each shard can be."""
    try:
        names = _shards(folder)
    except (OSError, ValueError) as error:
        return f"{folder}: {error.strerror if isinstance(error, OSError) else error}"
    if not names:
        return f"{folder} holds no weights"
    for name in names[:MOST_FILES]:
        why = blocked(folder / name)
        if why:
            return why
        if not (folder / name).stat().st_size:
            return f"{folder / name} is empty"
    return ""


def place(text: str, about: Target, env: Mapping[str, str]) -> tuple[Path | None, str]:
    """(folder, '') of a model as the server would find it; (None, why) where it is not on this host."""
    path = Path(about.workdir, text)
    if about.package == WRAPPER and (path / "target/config.json").exists():
        return path / "target", ""  # a pair in one folder
    if text.startswith(("/", "./", "../", "~")) or path.exists():
        return path, ""
    if text.count("/") != 1:
        return None, f"{path} does not exist, and {text} is no hub name"
    folder = hub_folder(text, env)
    return folder, "" if folder else f"{text} is not in this user's hub cache"


def one(
    what: str, text: str, about: Target, env: Mapping[str, str], dummy: bool
) -> tuple[Finding, dict[str, Any] | None]:
    """(finding, config) of a model; None where there is none. dummy: the weights are not read at all."""
    if about.package == WRAPPER and text == SHIPPED:
        return Finding(what, "ok", f"the pair that comes with {WRAPPER}"), None
    folder, why = place(text, about, env)
    who = about.user or "root"
    if folder is None:
        offline = any(
            env.get(key) in ("1", "true", "TRUE", "ON", "YES") for key in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
        )
        hub = text.count("/") == 1
        state = "warn" if hub and not offline else "fail"
        return Finding(what, state, f"{why}{'' if offline or not hub else ': it would be downloaded at the start'}",
                       "download it first" if hub else "correct the path"), None  # fmt: skip
    why = blocked(folder)
    if why:
        return Finding(what, "fail", f"as {who}: {why}", "correct the path, or let this user read it"), None
    if folder.is_file():
        return Finding(what, "ok", f"{folder} is readable as {who}"), None
    try:
        config = config_of(folder)
    except OSError as error:
        return Finding(
            what, "fail", f"as {who}: {folder}/config.json: {error.strerror}", "is this a model folder?"
        ), None
    except ValueError as error:
        return Finding(what, "fail", f"{folder}/config.json does not parse: {error}", "copy the model again"), None
    why = "" if dummy else weights(folder)
    if why:
        return Finding(what, "fail", f"as {who}: {why}", "copy the model again, or let this user read it"), config
    return Finding(what, "ok", f"{folder} is readable as {who}"), config


def tokenizer(about: Target, env: Mapping[str, str]) -> Finding:
    """The tokenizer: a folder of its own, or the target's."""
    text = about.value("tokenizer-path") or about.model
    folder, why = place(text, about, env)
    if folder is None:
        return Finding("tokenizer", "unknown", f"not known, because {why}")
    why = blocked(folder)
    if why:
        return Finding("tokenizer", "fail", f"as {about.user or 'root'}: {why}", "correct --tokenizer-path")
    names = [name for name in TOKENIZERS if (folder / name).exists()] if folder.is_dir() else []
    for name in names:
        why = blocked(folder / name)
        if why:
            return Finding("tokenizer", "fail", f"as {about.user or 'root'}: {why}", "let this user read it")
    if not names:
        return Finding(
            "tokenizer", "warn", f"{folder} holds none of {', '.join(TOKENIZERS)}", "copy it, or name --tokenizer-path"
        )
    return Finding("tokenizer", "ok", f"{folder}/{names[0]}")


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def pair(target: Mapping[str, Any], draft: Mapping[str, Any], about: Target) -> Finding:
    """Whether draft and target belong together, from their configs alone. DFlash shares the target's embedding and
    head, so that vocabulary and hidden size must be the target's own."""
    name = "draft fits target"
    wrong: list[str] = []
    odd: list[str] = []
    unsure: list[str] = []
    inner = draft.get("dflash_config")
    flash = inner if isinstance(inner, dict) else {}
    algorithm = about.value("speculative-algorithm").upper()
    shares = bool(flash) or algorithm in _SHARED or about.package == "ddtree_kernels"
    vocab, hidden, layers = (_number(target.get(key)) for key in ("vocab_size", "hidden_size", "num_hidden_layers"))
    for key, mine in (("vocab_size", vocab), ("hidden_size", hidden)):
        other = _number(draft.get(key))
        if mine is None or other is None:
            unsure.append(f"{key} is not in both configs")
        elif mine != other:
            (wrong if shares else odd).append(f"{key} {other}, the target has {mine}")
    of = _number(draft.get("num_target_layers"))
    if of is not None and layers is not None and of != layers:
        wrong.append(f"made for a target of {of} layers, this one has {layers}")
    ids = flash.get("target_layer_ids", draft.get("target_layer_ids"))
    if isinstance(ids, list) and layers is not None:
        out = [i for i in ids if not isinstance(i, int) or not 0 <= i < layers]
        if out:
            wrong.append(f"target_layer_ids {out} are outside the target's {layers} layers")
    elif shares:
        unsure.append("target_layer_ids is not in the draft's config")
    mask = _number(flash.get("mask_token_id", draft.get("mask_token_id")))
    if mask is not None and vocab is not None and not 0 <= mask < vocab:
        wrong.append(f"mask_token_id {mask} is outside the vocabulary of {vocab}")
    elif mask is None and shares:
        unsure.append("mask_token_id is not in the draft's config")
    block, asked = (
        _number(draft.get("block_size", flash.get("block_size"))),
        about.flags.get("speculative-dflash-block-size"),
    )
    if block is not None and isinstance(asked, int) and asked != block:
        odd.append(f"block size {asked} is asked for, the draft was trained with {block}")
    if wrong:
        return Finding(
            name, "fail", f"the draft has {'; '.join(wrong + odd)}", "use the draft that was trained for this target"
        )
    if odd:
        return Finding(name, "warn", "; ".join(odd), "use the draft's own values")
    if unsure:
        return Finding(name, "unknown", f"not known, because {'; '.join(unsure)}")
    layers_said = f", layers {', '.join(map(str, ids))} of {layers}" if isinstance(ids, list) else ""
    return Finding(name, "ok", f"vocabulary {vocab}, hidden size {hidden}{layers_said}, block {block or '?'}")


def check(about: Target, env: Mapping[str, str]) -> Iterator[Finding]:
    """All of them; as the unit's user. env: the unit's, with that user's HOME."""
    dummy = about.value("load-format") == "dummy"
    if not about.model:
        if about.package:
            yield Finding("model", "unknown", "not known, because the command names no model")
        return
    found, target = one("model", about.model, about, env, dummy)
    yield found
    if found.state == "ok" and about.package == "sglang" and not about.flags.get(NO_TOKENIZER):
        yield tokenizer(about, env)
    if about.draft:
        mine, draft = one("draft", about.draft, about, env, dummy)
        yield mine
        if target is not None and draft is not None:
            yield pair(target, draft, about)
