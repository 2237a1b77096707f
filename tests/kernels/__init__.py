"""Tests of ddtree_kernels: references, kernels against them (under Triton's interpreter where there is no GPU)."""
