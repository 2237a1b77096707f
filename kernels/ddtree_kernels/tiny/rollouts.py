"""What the target itself writes behind prompts, many prompts at a time: the drafter's training text."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from ddtree_kernels.models import rope, stack
from ddtree_kernels.models.qwen3 import Qwen3


def continuations(
    target: Qwen3, prompts: torch.Tensor, steps: int, temperature: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Tokens [B, P + steps]: prompts [B, P] and what the target adds; zeros behind a stop token.

    temperature [B]: 0 takes the most probable token, else one is sampled. Plain keys and values, no static cache: rows
    are many and short here.
    """
    shape, device = target.config.shape, target.device
    batch, length = prompts.shape
    turns = rope.frequencies(shape.rope, shape.head_dim).to(device)
    size = (batch, shape.num_key_value_heads, length + steps, shape.head_dim)
    keys = [torch.empty(size, device=device, dtype=target.dtype) for _ in target.layers]
    values = [torch.empty_like(key) for key in keys]
    stops, done = torch.tensor(target.config.stop_ids, device=device), 0
    written = F.pad(prompts, (0, steps))
    alive, tokens = torch.arange(batch, device=device), prompts
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
        noise = torch.rand((batch, logits.shape[1]), generator=generator, device=generator.device).to(device)[alive]
        gumbel = -torch.log(-torch.log(noise.clamp(1e-20, 1 - 1e-7)))
        chosen = (logits + gumbel * warm[alive]).argmax(dim=-1)
        written[alive, end] = chosen
        tokens, done = torch.cat([tokens, chosen[:, None]], dim=1), end
        going = ~torch.isin(chosen, stops)
        if not bool(going.all()):  # rows that have ended leave the batch
            alive, tokens = alive[going], tokens[going]
            keys, values = [key[going] for key in keys], [value[going] for value in values]
            if len(alive) == 0:
                break
    return written
