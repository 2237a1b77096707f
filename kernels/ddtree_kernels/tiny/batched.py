"""Both models over batches, differentiable and without a cache, from the same layers that serving runs."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from ddtree_kernels.models import rope, stack
from ddtree_kernels.models.api import DraftConfig, TargetConfig

Weights = dict[str, torch.Tensor]


def fresh(names: dict[str, tuple[int, ...]], layers: int, seed: int, device: str) -> Weights:
    """Initial weights as GPT-2's: norms 1, matrices normal, those that add to the residual smaller with depth."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, size in names.items():
        if len(size) == 1:
            tensor = torch.ones(size)
        else:
            spread = 0.02 if "embed" in name or "lm_head" in name else 1 / math.sqrt(size[1])
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                spread /= math.sqrt(2 * layers)
            tensor = torch.randn(size, generator=generator) * spread
        weights[name] = tensor.to(device).requires_grad_()
    return weights


def _heads_first(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(-2, -3)


def target_forward(
    weights: Weights, config: TargetConfig, tokens: torch.Tensor, layer_ids: tuple[int, ...] = ()
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [B, S, V] and features [B, S, len(layer_ids) * H] of tokens [B, S], each at positions 0 .. S-1."""
    shape = config.shape
    turns = rope.frequencies(shape.rope, shape.head_dim).to(tokens.device)
    x = F.embedding(tokens, weights["model.embed_tokens.weight"])
    cosines, sines = rope.turns(torch.arange(tokens.shape[1], device=tokens.device), turns, shape.rope, x.dtype)
    taken = []
    for i in range(shape.num_hidden_layers):
        layer = stack.build_layer(weights, f"model.layers.{i}.", shape)
        normed = stack.rms_norm(x, layer.input_norm, shape.rms_norm_eps)
        query, key, value = map(_heads_first, stack.project(layer, shape, normed, cosines, sines))
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = stack.finish(layer, shape, x, _heads_first(attended))
        if i in layer_ids:
            taken.append(x)
    hidden = stack.rms_norm(x, weights["model.norm.weight"], shape.rms_norm_eps)
    head = weights["model.embed_tokens.weight" if config.tied else "lm_head.weight"]
    return F.linear(hidden, head), torch.cat(taken, dim=-1) if taken else x[..., :0]


def draft_forward(
    weights: Weights,
    config: DraftConfig,
    features: torch.Tensor,
    roots: torch.Tensor,
    anchors: torch.Tensor,
    embedding: torch.Tensor,
    head: torch.Tensor,
) -> torch.Tensor:
    """Logits [B, A, block-1, V] of A blocks of each text, all in one pass.

    Args:
        features: [B, S, F] of the whole text; a block sees those before its anchor.
        roots, anchors: [B, A] the root's token and its position; anchors are at least 1.
        embedding, head: the target's [V, H].
    """
    shape, block = config.shape, config.block_size
    batch, length = features.shape[:2]
    count, device = anchors.shape[1], features.device
    turns = rope.frequencies(shape.rope, shape.head_dim).to(device)
    ids = torch.full((batch, count, block), config.mask_token_id, device=device)
    ids[..., 0] = roots
    x = F.embedding(ids.flatten(1), embedding)
    mixed = F.linear(features, weights["fc.weight"]).to(features.dtype)
    context = stack.rms_norm(mixed, weights["hidden_norm.weight"], shape.rms_norm_eps)
    positions = (anchors[..., None] + torch.arange(block, device=device)).flatten(1)
    own = rope.turns(positions, turns, shape.rope, x.dtype)
    theirs = rope.turns(torch.arange(length, device=device), turns, shape.rope, x.dtype)
    before = torch.arange(length, device=device) < anchors.repeat_interleave(block, dim=1)[..., None]
    group = torch.arange(count * block, device=device) // block
    seen = torch.cat([before, (group[:, None] == group).expand(batch, -1, -1)], dim=-1)[:, None]
    for i in range(shape.num_hidden_layers):
        layer = stack.build_layer(weights, f"layers.{i}.", shape)
        normed = stack.rms_norm(x, layer.input_norm, shape.rms_norm_eps)
        query, key, value = stack.project(layer, shape, normed, *own)
        context_key, context_value = stack.key_value(layer, shape, context, *theirs)
        attended = F.scaled_dot_product_attention(
            _heads_first(query),
            _heads_first(torch.cat([context_key, key], dim=1)),
            _heads_first(torch.cat([context_value, value], dim=1)),
            seen,
            enable_gqa=True,
        )
        x = stack.finish(layer, shape, x, _heads_first(attended))
    hidden = stack.rms_norm(x, weights["norm.weight"], shape.rms_norm_eps).unflatten(1, (count, block))
    return F.linear(hidden[:, :, 1:], head)
