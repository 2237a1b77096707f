"""Builds the draft tree: the budget's most probable prefixes of the drafter's per-position distributions."""

from ddtree_kernels.ops.tree_build.op import tree_build
from ddtree_kernels.ops.tree_build.tree import DraftTree

__all__ = ["DraftTree", "tree_build"]
