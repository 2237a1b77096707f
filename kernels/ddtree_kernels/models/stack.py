"""What the layers of both models share: projections, norms and the feed-forward part, for any leading dimensions.

Weights keep their published names on disk; in memory query, key and value are one matrix, and so are gate and up, so
that a layer is four matrix products.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from ddtree_kernels.models import rope
from ddtree_kernels.models.api import LayerShape


@dataclass(frozen=True, eq=False)
class Layer:
    """One decoder layer's weights; H query heads, Hkv key heads of D, hidden size E, intermediate size M.

    qkv [(H + 2 Hkv) D, E], out [E, H D], gate_up [2 M, E], down [E, M], qk_norm [H + Hkv, D], norms [E], biases or None
    """

    qkv: torch.Tensor
    out: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    qk_norm: torch.Tensor
    input_norm: torch.Tensor
    post_norm: torch.Tensor
    qkv_bias: torch.Tensor | None
    out_bias: torch.Tensor | None


def layer_names(shape: LayerShape, prefix: str) -> dict[str, tuple[int, ...]]:
    """Published name and size of every tensor of a layer whose names begin with prefix ("model.layers.0.")."""
    size, heads, kv = shape.hidden_size, shape.num_attention_heads, shape.num_key_value_heads
    dim, inner = shape.head_dim, shape.intermediate_size
    names: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (heads * dim, size),
        "self_attn.k_proj.weight": (kv * dim, size),
        "self_attn.v_proj.weight": (kv * dim, size),
        "self_attn.o_proj.weight": (size, heads * dim),
        "self_attn.q_norm.weight": (dim,),
        "self_attn.k_norm.weight": (dim,),
        "mlp.gate_proj.weight": (inner, size),
        "mlp.up_proj.weight": (inner, size),
        "mlp.down_proj.weight": (size, inner),
        "input_layernorm.weight": (size,),
        "post_attention_layernorm.weight": (size,),
    }
    if shape.attention_bias:
        names |= {
            "self_attn.q_proj.bias": (heads * dim,),
            "self_attn.k_proj.bias": (kv * dim,),
            "self_attn.v_proj.bias": (kv * dim,),
            "self_attn.o_proj.bias": (size,),
        }
    return {prefix + name: sizes for name, sizes in names.items()}


def build_layer(weights: Mapping[str, torch.Tensor], prefix: str, shape: LayerShape) -> Layer:
    """The layer of these published tensors; differentiable, so training may build it anew in every step."""

    def named(*names: str) -> list[torch.Tensor]:
        return [weights[f"{prefix}{name}"] for name in names]

    heads, kv = shape.num_attention_heads, shape.num_key_value_heads
    query_norm, key_norm = named("self_attn.q_norm.weight", "self_attn.k_norm.weight")
    biases = [f"self_attn.{part}_proj.bias" for part in "qkv"]
    return Layer(
        qkv=torch.cat(named(*(f"self_attn.{part}_proj.weight" for part in "qkv"))),
        out=weights[f"{prefix}self_attn.o_proj.weight"],
        gate_up=torch.cat(named("mlp.gate_proj.weight", "mlp.up_proj.weight")),
        down=weights[f"{prefix}mlp.down_proj.weight"],
        qk_norm=torch.cat([query_norm.expand(heads, -1), key_norm.expand(kv, -1)]),
        input_norm=weights[f"{prefix}input_layernorm.weight"],
        post_norm=weights[f"{prefix}post_attention_layernorm.weight"],
        qkv_bias=torch.cat(named(*biases)) if shape.attention_bias else None,
        out_bias=weights[f"{prefix}self_attn.o_proj.bias"] if shape.attention_bias else None,
    )


def build_layers(
    weights: Mapping[str, torch.Tensor], prefix: str, shape: LayerShape, drop: bool = False
) -> list[Layer]:
    """All layers, whose names begin with prefix ("model.layers."), number and dot.

    drop: takes each layer's tensors out of weights (then a dict) once it is built, so that merging them needs the
    memory of one layer and not of the whole model again.
    """
    layers = []
    for i in range(shape.num_hidden_layers):
        layers.append(build_layer(weights, f"{prefix}{i}.", shape))
        if drop:
            assert isinstance(weights, dict)
            for name in layer_names(shape, f"{prefix}{i}."):
                del weights[name]
    return layers


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """Root-mean-square norm over the last dimension."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def project(
    layer: Layer, shape: LayerShape, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Query [..., n, H, D], key and value [..., n, Hkv, D] of normed x [..., n, E]; heads normed, then turned."""
    heads, kv = shape.num_attention_heads, shape.num_key_value_heads
    packed = F.linear(x, layer.qkv, layer.qkv_bias).unflatten(-1, (heads + 2 * kv, shape.head_dim))
    turning = rms_norm(packed[..., : heads + kv, :], None, shape.rms_norm_eps) * layer.qk_norm
    turned = rope.rotate(turning, cosines, sines)
    return turned[..., :heads, :], turned[..., heads:, :], packed[..., heads + kv :, :]


def key_value(
    layer: Layer, shape: LayerShape, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Key and value [..., n, Hkv, D] alone, for context rows that ask nothing."""
    heads, kv, dim = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
    bias = None if layer.qkv_bias is None else layer.qkv_bias[heads * dim :]
    packed = F.linear(x, layer.qkv[heads * dim :], bias).unflatten(-1, (2 * kv, dim))
    keys = rms_norm(packed[..., :kv, :], None, shape.rms_norm_eps) * layer.qk_norm[heads:]
    return rope.rotate(keys, cosines, sines), packed[..., kv:, :]


def finish(layer: Layer, shape: LayerShape, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
    """The layer's output [..., n, E] from its input x and its attention's output [..., n, H, D]."""
    x = x + F.linear(attended.flatten(-2), layer.out, layer.out_bias)
    normed = rms_norm(x, layer.post_norm, shape.rms_norm_eps)
    gate, up = F.linear(normed, layer.gate_up).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * up, layer.down)
