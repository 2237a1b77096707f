"""tree_accept and linear_accept: arguments checked, then the kernels or the reference, chosen by device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ddtree_kernels.ops.checks import FLOAT_TYPES, INDEX_TYPES, need, need_tensor, on_gpu
from ddtree_kernels.ops.tree_accept import reference
from ddtree_kernels.ops.tree_build.tree import DraftTree


@dataclass(frozen=True, eq=False)
class Accepted:
    """What one round committed, root included; all on the device of the tree.

    nodes   [N, depth+1] int32  accepted node indices from the root (0) down, padding -1; they rise strictly
    counts  [N] int32           how many: 1 to depth+1
    bonus   [N] int64           the target's token after the last of them: the next round's root
    """

    nodes: torch.Tensor
    counts: torch.Tensor
    bonus: torch.Tensor


def _target(
    tokens: torch.Tensor | None, logits: torch.Tensor | None, batch: int, nodes: int, device: torch.device
) -> torch.Tensor:
    """The checked target tokens or logits, exactly one of which is given."""
    need((tokens is None) != (logits is None), "give either target_tokens or target_logits")
    if tokens is not None:
        return need_tensor("target_tokens", tokens, [batch, nodes], INDEX_TYPES, device)
    target = need_tensor("target_logits", logits, [batch, nodes, "vocab"], FLOAT_TYPES, device)
    need(target.stride(2) == 1 or target.shape[2] == 1, "the last dimension of target_logits is not contiguous")
    return target


def tree_accept(
    tree: DraftTree,
    target_tokens: torch.Tensor | None = None,
    *,
    target_logits: torch.Tensor | None = None,
    max_depth: int,
) -> Accepted:
    """The longest path from the root on which every node is the target's own token at its parent.

    Step 5 of Ringel and Romano (arXiv 2604.12989). Greedy: give target_logits, or their argmax as target_tokens.
    Sampled: give target_tokens, one ordinary sample per node drawn from the target at that node; the result is then
    distributed as the target's own sampling.

    Args:
        tree: as from tree_build, N requests of T nodes.
        target_tokens: [N, T] int32 or int64, the target's token after each node; not read at padding.
        target_logits: [N, T, V] bfloat16, float16 or float32 instead: the highest counts, the lowest token of equals,
            NaN as -inf.
        max_depth: the tree's depth limit L (draft positions); fixes the output's shape.
    Returns:
        Accepted. No host synchronisation; may be captured in a CUDA graph.
    Raises:
        TypeError, ValueError: for arguments that are none of the above.
    """
    need(isinstance(tree, DraftTree), f"tree is a {type(tree).__name__}, not a DraftTree")
    need(isinstance(max_depth, int) and max_depth >= 1, f"max_depth is {max_depth}, not at least 1")
    batch, nodes = tree.tokens.shape
    target = _target(target_tokens, target_logits, batch, nodes, tree.tokens.device)
    if on_gpu(target):
        from ddtree_kernels.ops.tree_accept import launch

        return Accepted(*launch.tree_walk(tree.tokens, tree.parents, target, max_depth))
    if target_logits is not None:
        target = reference.argmax(target)
    return Accepted(*reference.tree_walk(tree.tokens, tree.first_child, tree.next_sibling, target, max_depth))


def linear_accept(
    draft_tokens: torch.Tensor,
    target_tokens: torch.Tensor | None = None,
    *,
    target_logits: torch.Tensor | None = None,
) -> Accepted:
    """The longest prefix of a draft chain that the target's own tokens repeat (Leviathan et al., arXiv 2211.17192).

    Args:
        draft_tokens: [N, L] int32 or int64; node i + 1 of the chain is draft_tokens[:, i], node 0 is the root.
        target_tokens: [N, L+1] int32 or int64, the target's token after each node.
        target_logits: [N, L+1, V] instead, as in tree_accept.
    Returns:
        Accepted, with nodes 0, 1, 2 ... No host synchronisation.
    Raises:
        TypeError, ValueError: for arguments that are none of the above.
    """
    draft = need_tensor("draft_tokens", draft_tokens, ["batch", "depth"], INDEX_TYPES)
    batch, depth = draft.shape
    target = _target(target_tokens, target_logits, batch, depth + 1, draft.device)
    if on_gpu(target):
        from ddtree_kernels.ops.tree_accept import launch

        return Accepted(*launch.linear_walk(draft, target))
    if target_logits is not None:
        target = reference.argmax(target)
    return Accepted(*reference.linear_walk(draft, target))
