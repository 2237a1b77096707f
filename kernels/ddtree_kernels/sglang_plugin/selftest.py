"""The start-up self-test: does the verify pass apply the mask? A three-node tree through the real target. Needs sglang.

Nodes 1 and 2 hang from the root, node 3 from node 1. In two passes only node 1's token differs. Node 2 must not change:
its mask leaves its sibling out. Node 3 must change, or the test could not tell.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.speculative.dflash_info import DFlashVerifyInput

from ddtree_kernels.sglang_plugin import packed
from ddtree_kernels.sglang_plugin.tree import Tree

SMALL = 0.02
"""a sibling's change may be this share of a child's: kernels of one shape give the same bits, but for atomics."""


def tree(width: int, first: int, vocabulary: int) -> Tree:
    """Root, nodes 1 and 2 below it, node 3 below node 1, and the rest below node 2; `first` is node 1's token."""
    parents = [-1, 0, 0, 1, *([2] * width)][:width]
    tokens = [1, first, 4, 5, *(6 + i for i in range(width))][:width]
    bits: list[int] = []
    depths: list[int] = []
    for node, parent in enumerate(parents):
        bits.append((bits[parent] if node else 0) | 1 << node)
        depths.append(depths[parent] + 1 if node else 0)
    return Tree(tuple(t % vocabulary for t in tokens), tuple(parents), tuple(depths), tuple(bits))


def verdict(sibling: float, child: float, width: int) -> str:
    """What is wrong, by how far the logits of node 2 and node 3 moved; '' for nothing, `?` where it cannot be told."""
    if not sibling <= SMALL * max(child, 1e-6):
        return (
            f"the attention backend ignores the tree's mask: a node's logits moved by {sibling:.3g} with its sibling's "
            f"token (its child's by {child:.3g}): use --attention-backend triton"
        )
    return "?" if width > 3 and child <= 0 else ""


def logits_of(runner: Any, shape: Tree, visible: torch.Tensor | None) -> torch.Tensor:
    """[width, V] float32: the target's logits of one tree without a prefix. Its slots are given back.

    visible: [1, width, width] bool instead of the tree's own.
    """
    device, width = runner.device, shape.width
    up = packed.upload([shape], device)
    allocator = runner.token_to_kv_pool_allocator
    kept = allocator.backup_state()
    loc = allocator.alloc(width)
    if loc is None:
        raise RuntimeError(f"DDTREE: the KV pool has not even {width} slots: lower --mem-fraction-static's other users")
    none = torch.zeros((1,), dtype=torch.int64, device=device)
    spec_info = DFlashVerifyInput(
        draft_token=up.tokens.view(-1),
        positions=up.depths.reshape(-1),
        draft_token_num=width,
        custom_mask=packed.flat_mask(up.visible if visible is None else visible, none, 0),
        capture_hidden_mode=CaptureHiddenMode.FULL,
    )
    batch = ForwardBatch(
        forward_mode=ForwardMode.TARGET_VERIFY,
        batch_size=1,
        input_ids=up.tokens.view(-1),
        req_pool_indices=none,
        seq_lens=none,
        out_cache_loc=loc,
        seq_lens_sum=0,
        orig_seq_lens=none,
        seq_lens_cpu=torch.zeros((1,), dtype=torch.int64),
        return_logprob=False,
        positions=up.depths.reshape(-1),
        req_to_token_pool=runner.req_to_token_pool,
        token_to_kv_pool=runner.token_to_kv_pool,
        attn_backend=runner.attn_backend,
        spec_info=spec_info,
        spec_algorithm=runner.spec_algorithm,
        capture_hidden_mode=CaptureHiddenMode.FULL,
        num_token_non_padded=torch.tensor(width, dtype=torch.int32, device=device),
        num_token_non_padded_cpu=width,
        global_forward_mode=ForwardMode.TARGET_VERIFY,
    )
    try:
        with torch.inference_mode():
            output = runner.forward(batch).logits_output
            return output.next_token_logits[:width].float().clone()
    finally:
        allocator.restore_state(kept)


def run(runner: Any, width: int, vocabulary: int, break_mask: bool) -> tuple[str, float, float]:
    """(verdict, change of the sibling, change of the child); a block of two has no child."""
    visible = packed.causal(1, width, runner.device) if break_mask else None
    first, second = (logits_of(runner, tree(width, token, vocabulary), visible) for token in (2, 3))
    moved = (first - second).abs().amax(dim=-1).tolist()
    sibling, child = moved[2] if width > 2 else 0.0, moved[3] if width > 3 else 0.0
    return verdict(sibling, child, width), sibling, child
