"""config.json and generation_config.json -> TargetConfig and DraftConfig, or one clear line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddtree_kernels.models.api import DraftConfig, LayerShape, ModelError, Rope, TargetConfig

Json = Mapping[str, Any]


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; ModelError where it is missing, no JSON, or no object."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ModelError(f"{path} is no JSON: {error}") from error
    if not isinstance(read, dict):
        raise ModelError(f"{path} holds no JSON object")
    return read


class _Fields:
    """Checked access to one config.json; every complaint names the file and the field."""

    def __init__(self, raw: Json, path: Path) -> None:
        self.raw, self.path = raw, path

    def bad(self, what: str) -> ModelError:
        return ModelError(f"{self.path}: {what}")

    def count(self, name: str, default: int | None = None, least: int = 1) -> int:
        value = self.raw.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.bad(f"{name} is {value!r}, not a whole number of at least {least}")
        return value

    def number(self, name: str, default: float, raw: Json | None = None) -> float:
        value = (self.raw if raw is None else raw).get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise self.bad(f"{name} is {value!r}, not a number above 0")
        return float(value)


def _rope(fields: _Fields) -> Rope:
    """From rope_theta and rope_scaling, or from the newer rope_parameters."""
    raw = fields.raw.get("rope_parameters") or fields.raw.get("rope_scaling") or {}
    if not isinstance(raw, dict):
        raise fields.bad(f"rope_scaling is {raw!r}, not an object")
    kind = raw.get("rope_type", raw.get("type", "default"))
    if kind not in ("default", "linear", "yarn"):
        raise fields.bad(f"rope type {kind!r} is not supported (default, linear and yarn are)")
    theta = fields.number("rope_theta", fields.number("rope_theta", 10000.0), raw)
    factor = fields.number("factor", 1.0, raw)
    original = int(
        fields.number("original_max_position_embeddings", fields.count("max_position_embeddings", 32768), raw)
    )
    attention = 1.0
    if kind == "yarn":
        attention = fields.number("attention_factor", 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0, raw)
    fast, slow = fields.number("beta_fast", 32.0, raw), fields.number("beta_slow", 1.0, raw)
    return Rope(theta, kind, factor, original, fast, slow, attention)


def _windows(fields: _Fields, layers: int) -> tuple[int | None, ...]:
    """Each layer's sliding window: use_sliding_window allows it, layer_types (or max_window_layers) say where."""
    if not fields.raw.get("use_sliding_window") or fields.raw.get("sliding_window") is None:
        return (None,) * layers
    window, types = fields.count("sliding_window"), fields.raw.get("layer_types")
    if types is None:
        whole = fields.count("max_window_layers", 28, least=0)
        return tuple(window if i >= whole else None for i in range(layers))
    if not isinstance(types, list) or len(types) != layers:
        raise fields.bad(f"layer_types does not name {layers} layers")
    unknown = [kind for kind in types if kind not in ("full_attention", "sliding_attention")]
    if unknown:
        raise fields.bad(f"layer type {unknown[0]!r} is not supported (full and sliding attention are)")
    return tuple(window if kind == "sliding_attention" else None for kind in types)


def _shape(fields: _Fields) -> LayerShape:
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    layers, kv = fields.count("num_hidden_layers"), fields.count("num_key_value_heads", heads)
    if heads % kv:
        raise fields.bad(f"{heads} attention heads are no multiple of {kv} key heads")
    dim = fields.count("head_dim", max(1, hidden // heads))
    if dim % 2:
        raise fields.bad(f"head_dim is {dim}: rotary embedding needs pairs")
    if fields.raw.get("hidden_act", "silu") != "silu":
        raise fields.bad(f"hidden_act is {fields.raw['hidden_act']!r}, only silu is supported")
    return LayerShape(
        hidden_size=hidden,
        intermediate_size=fields.count("intermediate_size"),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        head_dim=dim,
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope=_rope(fields),
        attention_bias=bool(fields.raw.get("attention_bias", False)),
        max_position_embeddings=fields.count("max_position_embeddings", 32768),
        windows=_windows(fields, layers),
    )


def _architecture(fields: _Fields) -> str:
    names = fields.raw.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else "unknown"


def _stop_ids(raw: Json) -> tuple[int, ...]:
    ids = raw.get("eos_token_id")
    listed = ids if isinstance(ids, list) else [ids]
    return tuple(i for i in listed if isinstance(i, int) and not isinstance(i, bool))


def target_config(raw: Json, path: Path, generation: Json | None = None) -> TargetConfig:
    """The target's configuration; path names the file in complaints. ModelError for anything but a dense Qwen3."""
    fields = _Fields(raw, path)
    architecture = _architecture(fields)
    if architecture != "Qwen3ForCausalLM":
        raise fields.bad(f"architecture {architecture} is not supported: a target must be Qwen3ForCausalLM")
    if raw.get("quantization_config"):
        raise fields.bad("quantised weights are not supported")
    stops = dict.fromkeys([*_stop_ids(generation or {}), *_stop_ids(raw)])
    return TargetConfig(
        _shape(fields),
        fields.count("vocab_size"),
        bool(raw.get("tie_word_embeddings", False)),
        tuple(stops),
        architecture,
    )


def default_layer_ids(target_layers: int, draft_layers: int) -> tuple[int, ...]:
    """The target layers that DFlash conditions on where config.json names none: evenly from 1 to the last but three."""
    if draft_layers == 1:
        return (target_layers // 2,)
    span = target_layers - 4
    return tuple(round(1 + i * span / (draft_layers - 1)) for i in range(draft_layers))


def draft_config(raw: Json, path: Path) -> DraftConfig:
    """The drafter's configuration; ModelError for anything but a DFlash draft of a Qwen3 target."""
    fields = _Fields(raw, path)
    own = raw.get("dflash_config")
    if not isinstance(own, dict):
        raise fields.bad("no dflash_config: this is no DFlash draft model")
    if _architecture(fields) != "DFlashDraftModel":
        raise fields.bad(f"architecture {_architecture(fields)} is not supported: a draft must be DFlashDraftModel")
    shape = _shape(fields)
    merged = _Fields({**raw, **own}, path)
    target_layers = merged.count("num_target_layers", 1 if "target_layer_ids" in own else None)
    ids = own.get("target_layer_ids") or list(default_layer_ids(target_layers, shape.num_hidden_layers))
    if not isinstance(ids, list) or not all(isinstance(i, int) and i >= 0 for i in ids):
        raise fields.bad(f"target_layer_ids is {ids!r}, not a list of layer numbers")
    return DraftConfig(
        shape=shape,
        vocab_size=fields.count("vocab_size"),
        block_size=merged.count("block_size", least=2),
        mask_token_id=merged.count("mask_token_id", least=0),
        layer_ids=tuple(ids),
        target_layers=target_layers if "num_target_layers" in merged.raw else 0,
    )


def read_target_config(path: Path | str) -> TargetConfig:
    """Of a target's folder; no weights are read. ModelError."""
    folder = Path(path)
    generation = folder / "generation_config.json"
    return target_config(
        read_json(folder / "config.json"),
        folder / "config.json",
        read_json(generation) if generation.exists() else None,
    )


def read_draft_config(path: Path | str) -> DraftConfig:
    """Of a draft's folder; no weights are read. ModelError."""
    file = Path(path) / "config.json"
    return draft_config(read_json(file), file)
