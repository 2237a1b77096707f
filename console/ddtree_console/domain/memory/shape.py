"""What of a config.json decides memory: layers, heads, state, in numbers that were checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BYTES = {"float32": 4, "fp32": 4, "bfloat16": 2, "bf16": 2, "float16": 2, "half": 2, "fp16": 2, "float": 4}
MOST = {"num_hidden_layers": 1000, "tp": 1024}
_SPARSE = ("index_topk", "compress_ratios")
_OTHER_STATE = ("hybrid_override_pattern", "mamba_num_heads", "mamba_d_state", "ssm_cfg", "linear_attn_config")


class Unknown(ValueError):
    """The text says why it is not known."""


@dataclass(frozen=True)
class Shape:
    """A model in numbers; 0 where it has no such part. latent: MLA's floats a token and layer. linear: GDN layers.

    inner: widest part of the MLP that one token uses. vision: ViT layers x width squared.
    """

    layers: int
    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    inner: int
    width: int = 2
    latent: int = 0
    linear: int = 0
    key_heads: int = 0
    key_dim: int = 0
    value_heads: int = 0
    linear_value_dim: int = 0
    kernel: int = 0
    state_dtype: str = "float32"
    context: int = 0
    tied: bool = False
    vision: int = 0
    experts: int = 0
    expert_inner: int = 0
    shared_inner: int = 0
    sparse_layers: int = 0
    dense_inner: int = 0
    biased: bool = False
    block: int = 0
    features: int = 0
    architecture: str = ""
    quantized: bool = False

    @property
    def attention(self) -> int:
        """Layers that keep K and V of every token."""
        return self.layers - self.linear


def whole(raw: Mapping[str, Any], name: str, default: int | None = None, most: int = 10**9) -> int:
    """The whole number of that key, at least 1 (0 only by default). Unknown names the key."""
    value = raw.get(name)
    if value is None:
        if default is None:
            raise Unknown(f"config.json lacks {name}")
        return default
    fraction = isinstance(value, float) and not value.is_integer()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or fraction or not 1 <= value <= most:
        raise Unknown(f"config.json says {name} = {str(value)[:40]!r}")
    return int(value)


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's keys: those of text_config lie over those around it."""
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, Mapping) else config


def _kinds(raw: Mapping[str, Any], layers: int) -> int:
    """Linear-attention layers. Unknown for layers of another kind than these two."""
    kinds = raw.get("layer_types")
    if isinstance(kinds, (list, tuple)) and kinds:
        if len(kinds) != layers:
            raise Unknown(f"config.json has {layers} layers and {len(kinds)} layer_types")
        odd = next((str(k) for k in kinds if k not in ("full_attention", "linear_attention")), "")
        if odd == "sliding_attention":
            raise Unknown("the pool of sliding-window layers is not modelled")
        if odd:
            raise Unknown(f"layers of kind {odd[:40]!r} are not modelled")
        return sum(k == "linear_attention" for k in kinds)
    if raw.get("linear_num_value_heads") is None:
        return 0
    return layers - layers // whole(raw, "full_attention_interval", 4)


def _dtype(raw: Mapping[str, Any], config: Mapping[str, Any]) -> int:
    told = raw.get("torch_dtype") or raw.get("dtype") or config.get("torch_dtype") or "bfloat16"
    return BYTES.get(str(told).replace("torch.", ""), 2)


def _vision(config: Mapping[str, Any]) -> int:
    part = config.get("vision_config")
    if not isinstance(part, Mapping):
        return 0
    return whole(part, "num_hidden_layers", 24) * whole(part, "hidden_size", 1024) ** 2


def read(config: Mapping[str, Any]) -> Shape:
    """The shape in a config.json. Unknown says which key lacks, lies or is not modelled."""
    if not config:
        raise Unknown("config.json was not read")
    raw = text_part(config)
    for key in (*_SPARSE, *_OTHER_STATE):
        if raw.get(key) is not None:
            raise Unknown(f"the memory of models with {key} is not modelled")
    if raw.get("sliding_window") and raw.get("use_sliding_window", True) and not raw.get("layer_types"):
        raise Unknown("the pool of sliding-window layers is not modelled")
    layers = whole(raw, "num_hidden_layers", most=MOST["num_hidden_layers"])
    hidden, heads = whole(raw, "hidden_size", most=10**6), whole(raw, "num_attention_heads", most=10**5)
    head_dim = whole(raw, "head_dim", max(1, hidden // heads), 10**5)
    latent = 0
    if raw.get("kv_lora_rank") is not None:
        latent = whole(raw, "kv_lora_rank", most=10**6) + whole(raw, "qk_rope_head_dim", most=10**5)
    linear = _kinds(raw, layers)
    state: dict[str, int] = {}
    if linear:
        state = {
            "key_heads": whole(raw, "linear_num_key_heads", most=10**5),
            "key_dim": whole(raw, "linear_key_head_dim", most=10**5),
            "value_heads": whole(raw, "linear_num_value_heads", most=10**5),
            "linear_value_dim": whole(raw, "linear_value_head_dim", most=10**5),
            "kernel": whole(raw, "linear_conv_kernel_dim", 4, 100),
        }
    architectures = raw.get("architectures") or config.get("architectures")
    first = architectures[0] if isinstance(architectures, (list, tuple)) and architectures else ""
    return Shape(
        layers=layers,
        hidden=hidden,
        vocab=whole(raw, "vocab_size", most=10**8),
        heads=heads,
        kv_heads=whole(raw, "num_key_value_heads", heads, 10**5),
        head_dim=head_dim,
        value_dim=whole(raw, "v_head_dim", head_dim, 10**5),
        width=_dtype(raw, config),
        latent=latent,
        linear=linear,
        state_dtype=str(raw.get("mamba_ssm_dtype") or "float32"),
        context=whole(raw, "max_position_embeddings", 0),
        tied=bool(raw.get("tie_word_embeddings")),
        vision=_vision(config),
        biased=bool(raw.get("attention_bias")),
        block=whole(raw, "block_size", 0, 10**5),
        features=_features(raw),
        architecture=str(first),
        quantized=bool(raw.get("quantization_config") or config.get("quantization_config")),
        **state,
        **_mlp(raw, layers),
    )


def _features(raw: Mapping[str, Any]) -> int:
    """Target layers whose hidden states a draft model reads."""
    part = raw.get("dflash_config")
    ids = part.get("target_layer_ids") if isinstance(part, Mapping) else raw.get("target_layer_ids")
    return len(ids) if isinstance(ids, (list, tuple)) else 0


def _mlp(raw: Mapping[str, Any], layers: int) -> dict[str, int]:
    """The MLP: dense, or experts in every layer but those that config.json excepts."""
    count = next((raw[k] for k in ("num_experts", "n_routed_experts", "num_local_experts") if raw.get(k)), None)
    if count is None:
        dense = whole(raw, "intermediate_size", most=10**7)
        return {"inner": dense, "dense_inner": dense}
    experts = whole({"experts": count}, "experts", most=10**5)
    inner = whole(raw, "moe_intermediate_size", most=10**7)
    shared = whole(raw, "shared_expert_intermediate_size", whole(raw, "n_shared_experts", 0) * inner)
    each = whole(raw, "num_experts_per_tok", most=10**5)
    step, first = whole(raw, "decoder_sparse_step", 1), whole(raw, "first_k_dense_replace", 0)
    only = raw.get("mlp_only_layers") or ()
    if not isinstance(only, (list, tuple)):
        raise Unknown(f"config.json says mlp_only_layers = {str(only)[:40]!r}")
    sparse = sum(i >= first and (i + 1) % step == 0 and i not in only for i in range(layers))
    dense = whole(raw, "intermediate_size", 0, 10**7)
    return {
        "inner": max(each * inner + shared, dense if sparse < layers else 0),
        "dense_inner": dense,
        "experts": experts,
        "expert_inner": inner,
        "shared_inner": shared,
        "sparse_layers": sparse,
    }
