"""What a verify pass accepts: the longest path of the tree, and what the chain alone would. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence

from ddtree_kernels.sglang_plugin.tree import Nodes


def tree_path(tree: Nodes, chosen: Sequence[int]) -> list[int]:
    """Accepted nodes from the root (0) down. chosen: the target's own token after each node.

    One pass suffices: a child's index is above its parent's, and siblings have different tokens.
    """
    path, at, wanted = [0], 0, chosen[0]
    for node, parent in enumerate(tree.parents):
        if parent == at and tree.tokens[node] == wanted:
            path.append(node)
            at, wanted = node, chosen[node]
    return path


def chain_path(tree: Nodes, chosen: Sequence[int], spine: int) -> list[int]:
    """The same of the first `spine` drafted tokens alone, which is what linear DFLASH accepts."""
    at = 0
    while at < spine and tree.tokens[at + 1] == chosen[at]:
        at += 1
    return list(range(at + 1))


def emitted(tree: Nodes, chosen: Sequence[int], path: Sequence[int]) -> list[int]:
    """The tokens that this path gives: its drafted tokens, then the target's after its last node (the bonus)."""
    return [*(tree.tokens[node] for node in path[1:]), chosen[path[-1]]]
