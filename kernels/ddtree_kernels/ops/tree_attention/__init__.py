"""Attention of a draft tree's nodes over their context and their ancestors."""

from ddtree_kernels.ops.tree_attention.op import tree_attention

__all__ = ["tree_attention"]
