"""tree_build: arguments checked, then the kernels or the reference, chosen by device."""

from __future__ import annotations

import math

import torch

from ddtree_kernels.ops.checks import FLOAT_TYPES, INDEX_TYPES, need, need_tensor, on_gpu
from ddtree_kernels.ops.tree_build import reference
from ddtree_kernels.ops.tree_build.tree import DraftTree
from ddtree_kernels.ops.tree_build.tuning import MAX_BUDGET

MAX_DEPTH = 64
MAX_VOCABULARY = 1 << 20


def tree_build(
    draft_logits: torch.Tensor,
    root_tokens: torch.Tensor,
    *,
    budget: int,
    top_k: int | None = None,
    spine: bool = False,
    temperature: float = 1.0,
) -> DraftTree:
    """The `budget` most probable prefixes of the drafter's distributions, as a tree below the root token.

    The set is the best-first one of Ringel and Romano (arXiv 2604.12989, Prop. 1 to 3; `ddtree.py` of
    liranringel/ddtree). Prefixes are ordered by (higher log-probability, shallower, lexicographically lower ranks),
    ranks by (higher logit, lower token id), so that the result is the same on every device and in every batch.

    Args:
        draft_logits: [N, L, V] bfloat16, float16 or float32, L 1 to 64, V 1 to 2**20; last dimension contiguous.
            NaN counts as -inf, +inf as the largest float32. A prefix with log-probability -inf never enters the tree:
            rows of -inf end a request's draft before L.
        root_tokens: [N] int32 or int64: the bonus token that each tree hangs from.
        budget: B, nodes beside the root, 1 to 1024.
        top_k: at most this many tokens of each position; None = no limit below B.
        spine: the argmax chain is always in the tree, as far as B goes.
        temperature: the drafter's, above 0; logits are divided by it.
    Returns:
        DraftTree: see there for shapes and types. No host synchronisation; may be captured in a CUDA graph.
    Raises:
        TypeError, ValueError: for arguments that are none of the above.
    """
    logits = need_tensor("draft_logits", draft_logits, ["batch", "depth", "vocab"], FLOAT_TYPES)
    batch, depth, vocab = logits.shape
    need_tensor("root_tokens", root_tokens, [batch], INDEX_TYPES, logits.device)
    need(isinstance(budget, int) and 1 <= budget <= MAX_BUDGET, f"budget is {budget}, not 1 to {MAX_BUDGET}")
    need(depth <= MAX_DEPTH, f"draft_logits has {depth} positions, more than {MAX_DEPTH}")
    need(vocab <= MAX_VOCABULARY, f"draft_logits has a vocabulary of {vocab}, more than {MAX_VOCABULARY}")
    need(top_k is None or (isinstance(top_k, int) and top_k >= 1), f"top_k is {top_k}, not None or at least 1")
    need(math.isfinite(temperature) and temperature > 0, f"temperature is {temperature}, not above 0")
    need(logits.stride(2) == 1 or vocab == 1, "the last dimension of draft_logits is not contiguous")
    if on_gpu(logits):
        from ddtree_kernels.ops.tree_build import launch

        return launch.tree_build(logits, root_tokens, budget, top_k, spine, temperature)
    return reference.tree_build(logits, root_tokens, budget, top_k, spine, temperature)
