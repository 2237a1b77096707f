"""DFlash said again as plainly as possible: published names, no cache, no merged matrices, one head at a time."""

from __future__ import annotations

import math
from typing import Any

import torch

Weights = dict[str, torch.Tensor]


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm of each row."""
    return torch.stack([row / math.sqrt(float((row * row).mean()) + eps) for row in x]) * weight


def turn(row: torch.Tensor, position: int, theta: float) -> torch.Tensor:
    """RoPE of one head's vector: pair (i, i + half) turned by position * theta ** (-2 i / size)."""
    half, out = row.shape[0] // 2, row.clone()
    for i in range(half):
        angle = position * theta ** (-2 * i / row.shape[0])
        a, b = row[i], row[i + half]
        out[i] = a * math.cos(angle) - b * math.sin(angle)
        out[i + half] = b * math.cos(angle) + a * math.sin(angle)
    return out


def attention(config: dict[str, Any], at: Weights, block: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
    """Queries from the block; keys and values from the context's rows and then the block's; nobody is masked."""
    size, theta, eps = config["head_dim"], config["rope_theta"], config["rms_norm_eps"]
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    rows = torch.cat([context, block])
    first = len(context)
    outs = []
    for head in range(heads):
        key_head = head // (heads // kv)
        mine, theirs = slice(head * size, (head + 1) * size), slice(key_head * size, (key_head + 1) * size)
        q = norm(block @ at["self_attn.q_proj.weight"][mine].T, at["self_attn.q_norm.weight"], eps)
        k = norm(rows @ at["self_attn.k_proj.weight"][theirs].T, at["self_attn.k_norm.weight"], eps)
        v = rows @ at["self_attn.v_proj.weight"][theirs].T
        q = torch.stack([turn(row, first + i, theta) for i, row in enumerate(q)])
        k = torch.stack([turn(row, i, theta) for i, row in enumerate(k)])
        outs.append(torch.softmax(q @ k.T / math.sqrt(size), dim=-1) @ v)
    return torch.cat(outs, dim=-1) @ at["self_attn.o_proj.weight"].T


def draft_logits(
    config: dict[str, Any],
    weights: Weights,
    features: torch.Tensor,
    root: int,
    embedding: torch.Tensor,
    head: torch.Tensor,
) -> torch.Tensor:
    """[block-1, V] behind root, which stands right behind the features' rows."""
    eps, block = config["rms_norm_eps"], config["block_size"]
    context = norm(features @ weights["fc.weight"].T, weights["hidden_norm.weight"], eps)
    x = embedding[[root] + [config["dflash_config"]["mask_token_id"]] * (block - 1)]
    for layer in range(config["num_hidden_layers"]):
        at = {
            name.removeprefix(f"layers.{layer}."): tensor
            for name, tensor in weights.items()
            if name.startswith(f"layers.{layer}.")
        }
        x = x + attention(config, at, norm(x, at["input_layernorm.weight"], eps), context)
        y = norm(x, at["post_attention_layernorm.weight"], eps)
        gate, up = y @ at["mlp.gate_proj.weight"].T, y @ at["mlp.up_proj.weight"].T
        x = x + (gate * torch.sigmoid(gate) * up) @ at["mlp.down_proj.weight"].T
    return norm(x, weights["norm.weight"], eps)[1:] @ head.T
