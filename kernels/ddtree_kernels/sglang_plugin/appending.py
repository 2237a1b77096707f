"""The draft's KV of the tokens that a round committed, at slots and positions the round knows. Needs torch, sglang.

What stock's `_append_target_hidden_to_draft_kv` does (SGLang 0.5.12, speculative/dflash_worker.py) after a verify pass,
with its own kernels, but without looking the slots up again and without its waits for the GPU: one for the largest
position, which the host knows, and with several requests two more for the gathered slots.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.speculative.triton_ops.fused_kv_materialize import _fused_norm_rope


def append(worker: Any, features: torch.Tensor, positions: torch.Tensor, loc: torch.Tensor, last: int) -> None:
    """Writes the KV of features [tokens, F] to slots loc [tokens]. positions: [tokens] int64, the largest is `last`.

    RuntimeError where the draft's rotary table is shorter than that.
    """
    with torch.inference_mode():
        hidden = worker.draft_model.project_target_hidden(features)
        if worker._use_fused_kv_materialize and worker._fused_kv_helper is not None:
            _fused(worker, worker._fused_kv_helper, hidden, positions, loc, last)
        else:
            worker._append_target_hidden_sequential(hidden, positions, loc)


def _fused(
    worker: Any, helper: Any, hidden: torch.Tensor, positions: torch.Tensor, loc: torch.Tensor, last: int
) -> None:
    """FusedKVMaterializeHelper.materialize, told the largest position."""
    ensure = getattr(helper.rotary_emb, "_ensure_cos_sin_cache_length", None)
    if callable(ensure):
        ensure(last)
    table = helper.rotary_emb.cos_sin_cache
    if last >= int(table.shape[0]):
        raise RuntimeError(f"the draft's rotary table has {table.shape[0]} rows, position {last} needs more")
    pool = worker.draft_model_runner.token_to_kv_pool
    projected = torch.einsum("th,loh->lto", hidden, helper.batched_kv_weight)
    for number, layer in enumerate(worker.draft_model.layers):
        keys, values = _fused_norm_rope(
            projected[number],
            helper.k_norm_weights[number],
            table,
            positions,
            helper.num_kv_heads,
            helper.head_dim,
            helper.rotary_dim,
            helper.eps_values[number],
        )
        attention = layer.self_attn.attn
        pool.set_kv_buffer(attention, loc, keys, values, attention.k_scale, attention.v_scale)
