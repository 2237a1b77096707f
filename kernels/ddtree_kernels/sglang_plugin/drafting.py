"""One draft pass of a batch, into slots that its verify pass takes over. Needs torch and sglang.

What stock's `_prepare_for_speculative_decoding` does (SGLang 0.5.12, speculative/dflash_worker.py), without its two
waits for the GPU (lengths that the host knows), its second allocation and its mask of a chain, which no tree uses.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.mem_cache.common import alloc_token_slots
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_utils import assign_req_to_token_pool_func


def reserve(batch: Any, width: int) -> torch.Tensor:
    """Slots [batch, width] of a round, listed at the positions behind each request's prefix."""
    count = batch.batch_size()
    loc = alloc_token_slots(batch.tree_cache, count * width)
    assign_req_to_token_pool_func(
        batch.req_pool_indices,
        batch.req_to_token_pool.req_to_token,
        batch.seq_lens,
        batch.seq_lens + width,
        loc,
        count,
    )
    return loc.view(count, width)


def draft(worker: Any, batch: Any, draft_input: Any, loc: torch.Tensor) -> torch.Tensor:
    """The draft's hidden states of the positions behind the root [batch * (block - 1), H].

    loc: [batch, width] slots; the draft's KV of the block lies in the first of each request until the next round.
    """
    count, block = batch.batch_size(), int(worker.block_size)
    ids = torch.full((count, block), int(worker._mask_token_id), dtype=torch.int64, device=loc.device)
    ids[:, 0] = draft_input.bonus_tokens
    embeds = worker.target_worker.model_runner.model.get_input_embeddings()(ids)
    runner = worker.draft_model_runner
    passed = ForwardBatch(
        # a block of fixed size, for which a graph was captured; its kernels add the block to `seq_lens` themselves
        forward_mode=ForwardMode.TARGET_VERIFY,
        batch_size=count,
        input_ids=ids.view(-1),
        req_pool_indices=batch.req_pool_indices,
        seq_lens=draft_input.draft_seq_lens,
        out_cache_loc=loc[:, :block].reshape(-1),
        seq_lens_sum=int(batch.seq_lens_cpu.sum()),
        seq_lens_cpu=batch.seq_lens_cpu,
        positions=(batch.seq_lens[:, None] + worker._block_pos_offsets).view(-1),
        req_to_token_pool=runner.req_to_token_pool,
        token_to_kv_pool=runner.token_to_kv_pool,
        attn_backend=runner.attn_backend,
        input_embeds=embeds.view(-1, embeds.shape[-1]),
        spec_algorithm=SpeculativeAlgorithm.DFLASH,
        spec_info=worker._draft_block_spec_info,
        capture_hidden_mode=CaptureHiddenMode.NULL,
    )
    with torch.inference_mode():
        hidden = runner.forward(passed).logits_output.hidden_states
    if hidden is None:
        raise RuntimeError("DDTREE: the draft gave no hidden states")
    size = hidden.shape[-1]
    return hidden.view(count, block, size)[:, 1:].reshape(-1, size)
