"""Moves the accepted rows of every layer's keys and values to the front of the appended window."""

from ddtree_kernels.ops.kv_commit.op import feature_commit, kv_commit
from ddtree_kernels.ops.kv_commit.table import KvTable, kv_table

__all__ = ["KvTable", "feature_commit", "kv_commit", "kv_table"]
