"""Walks the verified tree: which nodes the target accepts, and the bonus token."""

from ddtree_kernels.ops.tree_accept.op import Accepted, linear_accept, tree_accept

__all__ = ["Accepted", "linear_accept", "tree_accept"]
