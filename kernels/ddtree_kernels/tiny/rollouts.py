"""What the target itself writes behind prompts, many prompts at a time: the drafter's training text."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from ddtree_kernels.models import rope, stack
from ddtree_kernels.models.qwen3 import Qwen3


def continuations(
    target: Qwen3, prompts: torch.Tensor, steps: int, temperature: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Tokens [B, P + steps]: prompts [B, P] and what the target adds; text behind a stop token means nothing.

    temperature [B]: 0 takes the most probable token, else one is sampled. Plain keys and values, no static cache: rows
    are many and short here.
    """
    shape, device = target.config.shape, target.device
    batch, length = prompts.shape
    turns = rope.frequencies(shape.rope, shape.head_dim).to(device)
    size = (batch, shape.num_key_value_heads, length + steps, shape.head_dim)
    keys = [torch.empty(size, device=device, dtype=target.dtype) for _ in target.layers]
    values = [torch.empty_like(key) for key in keys]
    stops = torch.tensor(target.config.stop_ids, device=device)
    tokens, done, stopped = prompts, 0, torch.zeros(batch, dtype=torch.bool, device=device)
    warm = temperature.to(device)[:, None]
    for _ in range(steps):
        new = tokens[:, done:]
        end = tokens.shape[1]
        cosines, sines = rope.turns(torch.arange(done, end, device=device), turns, shape.rope, target.dtype)
        x = target.embed(new)
        for i, layer in enumerate(target.layers):
            normed = stack.rms_norm(x, layer.input_norm, shape.rms_norm_eps)
            query, key, value = stack.project(layer, shape, normed, cosines, sines)
            keys[i][:, :, done:end], values[i][:, :, done:end] = key.transpose(1, 2), value.transpose(1, 2)
            attended = F.scaled_dot_product_attention(
                query.transpose(1, 2), keys[i][:, :, :end], values[i][:, :, :end], is_causal=done == 0, enable_gqa=True
            )
            x = stack.finish(layer, shape, x, attended.transpose(1, 2))
        logits = target.logits(stack.rms_norm(x[:, -1], target.norm, shape.rms_norm_eps)).float()
        noise = torch.rand(logits.shape, generator=generator, device=generator.device).to(device)
        gumbel = -torch.log(-torch.log(noise.clamp(1e-20, 1 - 1e-7)))
        chosen = (logits + gumbel * warm).argmax(dim=-1, keepdim=True)
        tokens, done = torch.cat([tokens, chosen], dim=1), end
        stopped |= torch.isin(chosen[:, 0], stops)
        if bool(stopped.all()):
            break
    return F.pad(tokens, (0, length + steps - tokens.shape[1]))
