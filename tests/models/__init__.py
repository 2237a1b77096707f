"""Tests of ddtree_kernels.models and ddtree_kernels.tiny."""
